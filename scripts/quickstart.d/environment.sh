# SPDX-License-Identifier: MIT
# The environment in which everything is built and run.

# prepare_environment SET: installs a set of packages, and sets `route` and `entry`, the command that starts programs in
# the environment.
prepare_environment() {
  in_root=no
  choose_route
  if [[ $route == debian ]]; then
    use_debian "$1"
  else
    install_on_machine "$1"
    enter_machine
  fi
}

use_debian() {
  local version
  version=$(debian_version) || die "the packages of Debian need Debian 12 or later; on this system set Kokkos_ROOT" \
    "to a Kokkos >= 4.6, or KFORMER_ROUTE=upstream where its host answers"
  if ((${version%%.*} < 13)); then
    in_root=yes
    prepare_root "$1"
    enter_through_root
    entry+=(env -i PATH="$(path_of_programs):/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
  else
    install_on_machine "$1"
    entry=(env -i PATH="$(path_of_programs):/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
  fi
  # The caller's compilers, libraries and Python are of another system: only what steers programs is passed on.
  local name
  for name in $(compgen -e); do
    case $name in
      OMP_* | GOMP_* | KOKKOS_* | KFORMER_* | CTEST_* | MPL* | SPACK_* | HOME | USER | LOGNAME | TERM | COLUMNS | TZ | CI | TMPDIR)
        entry+=("$name=${!name}")
        ;;
    esac
  done
  entry+=(LANG=C.UTF-8 PYTHONNOUSERSITE=1 PYTHONPATH="$checkout/analysis")
  # The checkout may belong to another user than root; its revision goes into the results all the same.
  entry+=(GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0="$checkout")
  # What does not depend on Kokkos is compiled once for both builds.
  entry+=(CCACHE_DIR="$state/ccache" CCACHE_DEPEND=1)
  unpack_kokkos openmp
}

enter_machine() {
  entry=(env PATH="$(path_of_programs):$PATH" PYTHONPATH="$checkout/analysis${PYTHONPATH:+:$PYTHONPATH}")
}

path_of_programs() { printf '%s\n' "$(build_folder openmp)/drivers"; }

# The first Python that has what the plots need; Debian's own may stand behind another one in PATH.
find_python() {
  local candidate check='
import importlib.util, sys
missing = [name for name in ("h5py", "matplotlib", "xarray") if not importlib.util.find_spec(name)]
sys.exit(1) if missing else print(sys.executable)'
  for candidate in python3 /usr/bin/python3; do
    if "${entry[@]}" "$candidate" -c "$check"; then
      return
    fi
  done
  die "no Python here has h5py, matplotlib and xarray; install them for python3"
}
