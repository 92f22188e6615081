# SPDX-License-Identifier: MIT
# enter_root.sh ROOT CHECKOUT PROGRAM ARGS...: runs PROGRAM on the /usr and /etc of the Debian root ROOT;
# all other paths stay the machine's own. To be called in a mount namespace of its own, which ends with PROGRAM.
set -euo pipefail
shopt -s nullglob

root=$1 checkout=$2 caller_directory=$PWD
shift 2

# bind FROM TO: FROM appears at TO as well.
bind() {
  [[ ! -d $1 ]] || mkdir -p "$2"
  mount --rbind "$1" "$2"
}

for file in /etc/resolv.conf /etc/hosts /etc/passwd /etc/group; do
  [[ ! -e $file || ! -e $root$file ]] || bind "$file" "$root$file"
done

# What people keep below /usr, but no programs and libraries: those would mix two systems.
for folder in /usr/src /usr/local/*/; do
  case $folder in
    /usr/local/bin/ | /usr/local/sbin/ | /usr/local/lib*/ | /usr/local/include/ | /usr/local/share/) ;;
    *) bind "${folder%/}" "$root${folder%/}" ;;
  esac
done
for folder in "$checkout" "$caller_directory"; do
  case $folder in
    /usr/* | /etc/*) bind "$folder" "$root$folder" ;;
  esac
done

# Systems on which /bin and the like are no links into /usr.
for folder in /bin /sbin /lib /lib64; do
  [[ -L $folder || ! -d $folder ]] || bind "$root/usr$folder" "$folder"
done
# So that apt, called in the shell, knows and changes the root's packages and not the machine's.
for folder in /var/lib/dpkg /var/lib/apt /var/cache/apt; do
  bind "$root$folder" "$folder"
done
bind "$root/etc" /etc
bind "$root/usr" /usr

cd "$caller_directory"
exec "$@"
