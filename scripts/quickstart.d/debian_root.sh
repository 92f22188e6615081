# SPDX-License-Identifier: MIT
# A Debian 13 root for machines whose own Debian is older than what Debian's Kokkos packages need.

root_release=trixie
root=$state/debian-$root_release

# prepare_root SET
prepare_root() {
  is_root || die "this Debian is older than 13: its packages go into a Debian 13 root, which only root can make." \
    "Run as root, or set Kokkos_ROOT to a Kokkos >= 4.6, or KFORMER_ROUTE=upstream where its host answers"
  may_mount || command -v proot >/dev/null || step "proot, as mounts are not allowed here (apt)" apt-proot \
    install_packages proot
  forget_without "$root" root
  once "Debian 13 root with the packages of the build (1.3 GB)" root "$(key_of "$root_release" "$(declare -f configure_root)")" \
    make_root
  once "packages of the build, in the Debian 13 root" root-build "$(key_of "$(packages_for build)")" \
    install_in_root build
  [[ $1 == build ]] || once "packages of the $1, in the Debian 13 root" "root-$1" "$(key_of "$(packages_for "$1")")" \
    install_in_root "$1"
}

# Whether commands can have a mount namespace of their own. What is mounted there goes when they end, however
# they end, so that removing a half-made root can never reach through a mount.
may_mount() { unshare --mount mount --bind "$state" "$state" 2>/dev/null; }

make_root() {
  local new=$root.new mirror packages
  command -v mmdebstrap >/dev/null || install_packages mmdebstrap debian-archive-keyring
  mirror=$(debian_mirror)
  packages=$(packages_for build)
  remove_root "$new"
  remove_root "$root"
  rm -f "$state/stamps/root-"*
  mkdir "$new"
  configure_root "$new"
  local mmdebstrap=(
    mmdebstrap --mode=root --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    --skip=check/empty "--aptopt=$new/etc/apt/apt.conf.d/90kformer" "--dpkgopt=$new/etc/dpkg/dpkg.cfg.d/kformer"
    "--include=${packages//$'\n'/,}" "$root_release" "$new" "$mirror"
  )
  if may_mount; then
    unshare --mount -- "${mmdebstrap[@]}"
  else
    "${mmdebstrap[@]}"
  fi
  mv "$new" "$root"
  key_of "$packages" >"$state/stamps/root-build"
}

remove_root() {
  if grep -qF " $1/" /proc/self/mountinfo; then
    echo "Something is mounted below $1; unmount it first:"
    grep -F " $1/" /proc/self/mountinfo
    return 1
  fi
  rm -rf --one-file-system "$1"
}

# Small and fast to install; reaches the archive the way the machine's apt does.
configure_root() {
  mkdir -p "$1/etc/dpkg/dpkg.cfg.d" "$1/etc/apt/apt.conf.d" "$1/etc/apt/auth.conf.d"
  cat >"$1/etc/dpkg/dpkg.cfg.d/kformer" <<'EOF'
force-unsafe-io
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
EOF
  {
    apt-config dump | grep -E '^Acquire::(http|https|Check-Valid-Until|Check-Date|Retries|ForceIPv4)\b' || true
    echo 'Acquire::Languages "none";'
  } >"$1/etc/apt/apt.conf.d/90kformer"
  [[ ! -r /etc/apt/auth.conf ]] || cp /etc/apt/auth.conf "$1/etc/apt/"
  cp -r /etc/apt/auth.conf.d/. "$1/etc/apt/auth.conf.d/" 2>/dev/null || true
  if [[ -r /etc/ssl/certs/ca-certificates.crt ]]; then
    mkdir -p "$1/etc/ssl/certs"
    cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"
  fi
  touch "$1/etc/resolv.conf" "$1/etc/hosts"
}

install_in_root() {
  local packages
  mapfile -t packages < <(packages_for "$1")
  local file
  for file in /etc/resolv.conf /etc/hosts; do
    [[ ! -r $file ]] || cp "$file" "$root$file"
  done
  in_bare_root dpkg --configure -a
  in_bare_root apt-get update
  in_bare_root "${apt_install[@]}" --fix-broken "${packages[@]}"
  in_bare_root apt-get clean
}

# The root alone, as package scripts want it; with /proc where that mount goes away by itself.
in_bare_root() {
  local in_root=(chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root)
  if may_mount; then
    # shellcheck disable=SC2016
    unshare --mount -- bash -c 'mount -t proc proc "$0/proc" && exec "$@"' "$root" "${in_root[@]}" "$@"
  else
    "${in_root[@]}" "$@"
  fi
}

# Sets `entry`: the command that runs a program on the root's /usr and /etc, everything else being the
# machine's own, under its own path.
enter_through_root() {
  if may_mount; then
    entry=(unshare --mount -- bash "$checkout/scripts/quickstart.d/enter_root.sh" "$root" "$checkout")
  else
    entry=(proot -b "$root/usr:/usr" -b "$root/etc:/etc" -b "$checkout" -b "$PWD")
    local file
    for file in /etc/resolv.conf /etc/hosts /etc/passwd /etc/group; do
      [[ ! -e $file ]] || entry+=(-b "$file")
    done
  fi
}
