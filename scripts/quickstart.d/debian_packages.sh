# SPDX-License-Identifier: MIT
# Debian's packages: what is installed, what is only unpacked (Kokkos), and where they come from.

build_packages=(
  g++ cmake ninja-build ccache git
  libhdf5-dev libtomlplusplus-dev libcli11-dev libfmt-dev nlohmann-json3-dev
  libpcre2-dev libsentencepiece-dev libicu-dev
  libopenblas-openmp-dev liblapack-dev
  libopenmpi-dev openmpi-bin
)
plot_packages=(python3 python3-h5py python3-h5netcdf python3-xarray python3-pandas python3-numpy python3-matplotlib)
test_packages=(libboost-dev libboost-test-dev python3-netcdf4 netcdf-bin)
check_packages=(
  doxygen clang-format-19 clang-tidy-19 libbenchmark-dev
  python3-sphinx python3-breathe python3-myst-parser furo python3-setuptools mypy
)
# Daemons that a test starts: never on a machine, which would start them at boot. The root has no /sbin/init, without which
# Debian's packages start nothing. The small sysusers spares systemd.
daemon_packages=(slurm-wlm munge systemd-standalone-sysusers)

# packages_for build|plots|tests|checks: one a line; each set has those before it.
packages_for() {
  printf '%s\n' "${build_packages[@]}"
  [[ $1 != build ]] || return 0
  printf '%s\n' "${plot_packages[@]}"
  [[ $1 != plots ]] || return 0
  printf '%s\n' "${test_packages[@]}"
  [[ $1 != tests ]] || return 0
  printf '%s\n' "${check_packages[@]}"
  [[ $in_root == no ]] || printf '%s\n' "${daemon_packages[@]}"
}

apt_install=(
  env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends
  -o DPkg::Lock::Timeout=300
)

is_root() { [[ $(id -u) == 0 ]]; }

# Debian's major version, a large number for testing and unstable; fails elsewhere.
debian_version() (
  [[ -r /etc/os-release ]] || return 1
  # shellcheck source=/dev/null
  source /etc/os-release
  [[ ${ID:-} == debian ]] || return 1
  printf '%s\n' "${VERSION_ID:-99}"
)

missing_packages() {
  local wanted
  wanted=$(packages_for "$1")
  # shellcheck disable=SC2086
  comm -23 <(sort <<<"$wanted") \
    <(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' $wanted 2>/dev/null |
      sed -n 's/^installed //p' | sort)
}

# install_on_machine SET: as root on a machine with apt; otherwise says what is missing.
install_on_machine() {
  local missing
  if ! command -v apt-get >/dev/null; then
    say "no apt-get on this machine: CMake will say what is missing"
    return
  fi
  missing=$(missing_packages "$1" | tr '\n' ' ')
  [[ -n $missing ]] || return 0
  if is_root; then
    # shellcheck disable=SC2086
    step "packages of the $1 (apt)" apt-install install_packages $missing
  elif [[ ${KFORMER_ROUTE:-${route:-}} == debian ]]; then
    die "these packages are missing, and only root can install them: apt-get install $missing"
  else
    say "not installed, and you are not root: $missing; CMake may find them elsewhere"
  fi
}

install_packages() {
  dpkg --configure -a
  # A foreign source that fails to update is no reason to stop: the install below decides.
  apt-get update || true
  "${apt_install[@]}" "$@"
}

# plots_are_missing: whether this call can install what draws the plots.
plots_are_missing() {
  if [[ $in_root == yes ]]; then
    ! is_done root-plots "$(key_of "$(packages_for plots)")"
  else
    is_root && command -v apt-get >/dev/null && [[ -n $(missing_packages plots) ]]
  fi
}

install_plots() {
  if [[ $in_root == yes ]]; then
    do_and_stamp root-plots "$(key_of "$(packages_for plots)")" install_in_root plots
  else
    # shellcheck disable=SC2046
    install_packages $(missing_packages plots)
  fi
}

# The archive that this machine's apt uses for Debian itself, from its sources.
debian_mirror() {
  local mirror=${KFORMER_DEBIAN_MIRROR:-}
  [[ -n $mirror ]] || mirror=$(
    source /etc/os-release
    apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
      awk -v release="${VERSION_CODENAME:-sid}" '$2 == release && !found { print $1; found = 1 }'
  )
  [[ -n $mirror ]] || die "no Debian archive among this machine's apt sources; name one in KFORMER_DEBIAN_MIRROR"
  printf '%s\n' "$mirror"
}

# kokkos_prefix openmp|serial
kokkos_prefix() { printf '%s\n' "$state/kokkos-$1/usr"; }

# unpack_kokkos openmp|serial: OpenMP is Kokkos alone; Serial has Kokkos Kernels beside it.
unpack_kokkos() {
  local packages=(libkokkos-dev) title="Kokkos with OpenMP (Debian's packages)"
  if [[ $1 == serial ]]; then
    packages=(libtrilinos-kokkos-dev libtrilinos-kokkos-kernels-dev)
    title="Kokkos with Serial, and Kokkos Kernels (Debian's packages)"
  fi
  forget_without "$state/kokkos-$1" "kokkos-$1"
  once "$title" "kokkos-$1" "$(key_of "$(declare -f provide_kokkos download_debs unpack_debs)")" \
    provide_kokkos "$1" "${packages[@]}"
}

provide_kokkos() {
  local debs=$state/debs-$1 prefix=$state/kokkos-$1
  if { download_debs "$debs" "${@:2}" && unpack_debs "$debs" "$prefix.new"; } ||
    { copy_cached_debs "$debs" "$1" && unpack_debs "$debs" "$prefix.new"; }; then
    rm -rf "$prefix"
    mv "$prefix.new" "$prefix"
  else
    echo "Neither the Debian archive nor KFORMER_DEB_CACHE (${KFORMER_DEB_CACHE:-not set}) has a Kokkos that runs here."
    return 1
  fi
}

# download_debs FOLDER PACKAGE...: the packages, and the Kokkos libraries that they depend on.
download_debs() {
  local folder=$1 libraries
  shift
  rm -rf "$folder" && mkdir -p "$folder" && write_apt_configuration &&
    apt_aside update && (cd "$folder" && apt_aside download "$@") || return
  libraries=$(dpkg_depends "$folder"/*.deb | grep -E '^(lib(trilinos-)?kokkos|trilinos-dev)' | sort -u)
  # shellcheck disable=SC2086
  (cd "$folder" && apt_aside download $libraries)
}

dpkg_depends() {
  local deb
  for deb in "$@"; do
    dpkg-deb --field "$deb" Depends | tr ',' '\n' | awk '{ print $1 }'
  done
}

# An apt of our own, beside the machine's: no root, and nothing of the machine's configuration changes.
# Debian's Trilinos brings the only Kokkos Kernels; its experimental version is the one with Kokkos 5.
write_apt_configuration() {
  local mirror keyring=/usr/share/keyrings/debian-archive-keyring.gpg signed=""
  mirror=$(debian_mirror) || return
  [[ ! -r $keyring ]] || signed="[signed-by=$keyring] "
  mkdir -p "$state/apt"/{lists,cache/archives}/partial "$state/apt/empty" &&
    printf "deb $signed%s %s main\n" "$mirror" sid "$mirror" experimental >"$state/apt/sources.list" &&
    printf '%s\n' 'Package: *trilinos*' 'Pin: release a=experimental' 'Pin-Priority: 900' >"$state/apt/preferences"
}

# The indices of sid that a mirror holds may be past their Valid-Until; their signatures are checked all the same.
apt_aside() {
  local apt=$state/apt
  apt-get --quiet \
    -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts="$apt/empty" \
    -o Dir::Etc::Preferences="$apt/preferences" -o Dir::Etc::PreferencesParts="$apt/empty" \
    -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" \
    -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none "$@"
}

# copy_cached_debs FOLDER openmp|serial
copy_cached_debs() {
  local folder=$1 cache=${KFORMER_DEB_CACHE:-} pattern=' libkokkos'
  [[ -n $cache && -r $cache/SHA256SUMS ]] || return 1
  echo "Taking the packages of $cache instead."
  [[ $2 == openmp ]] || pattern='trilinos'
  rm -rf "$folder" && mkdir -p "$folder" &&
    grep "$pattern" "$cache/SHA256SUMS" >"$folder/SHA256SUMS" &&
    (cd "$cache" && sha256sum --check "$folder/SHA256SUMS") &&
    awk '{ print $2 }' "$folder/SHA256SUMS" | sed "s|^|$cache/|" | xargs cp -t "$folder"
}

# unpack_debs FOLDER PREFIX: unpacks and checks that the libraries run in the environment.
unpack_debs() {
  local folder=$1 prefix=$2 deb archive libraries unresolved
  rm -rf "$prefix"
  for deb in "$folder"/*.deb; do
    dpkg-deb --extract "$deb" "$prefix" || return
  done
  # Debian's Kokkos names its own place only here by an absolute path.
  sed -i 's|"/usr/include/|"${_IMPORT_PREFIX}/include/|' "$prefix"/usr/lib/*/cmake/Kokkos/KokkosTargets.cmake || return
  # Debian's Kokkos names two static libraries that the package forgot; they are empty in Kokkos 5.
  for archive in $(grep -rhoE '/lib/[^"; ]*\.a' "$prefix"/usr/lib/*/cmake/Kokkos/*.cmake | sort -u); do
    [[ -e $prefix/usr$archive ]] || "${entry[@]}" ar cr "$prefix/usr$archive" || return
  done
  libraries=$(dirname "$(compgen -G "$prefix/usr/lib/*/libkokkoscore.so")")
  unresolved=$("${entry[@]}" env LD_LIBRARY_PATH="$libraries" ldd "$libraries"/*.so | grep 'not found')
  [[ -z $unresolved ]] || {
    printf 'These packages do not run here:\n%s\n' "$unresolved"
    return 1
  }
}
