# SPDX-License-Identifier: MIT
# The builds: openmp (without Kokkos Kernels), serial (with it), and asan (openmp with sanitizers).

# build_folder openmp|serial|asan|more: the last is the same build as the first.
build_folder() { printf '%s\n' "$state/build-$route-${1/more/openmp}"; }

prepare_to_build() {
  prepare_environment build
  configure openmp drivers
}

# prepare_driver DRIVER: builds it, and installs meanwhile what draws plots.
prepare_driver() {
  prepare_to_build
  if plots_are_missing; then
    step "building $1, installing the packages of the plots" "build-$route-openmp" build_beside_plots "$1"
  elif ! is_built openmp "$1"; then
    build openmp "$1"
  fi
}

build_beside_plots() {
  local failed=0 plots
  install_plots >"$state/logs/plots.log" 2>&1 &
  plots=$!
  build_in openmp "$1" || failed=1
  wait "$plots" || {
    echo "Installing the packages of the plots failed: $state/logs/plots.log"
    failed=1
  }
  return "$failed"
}

# prepare_for_tests [full]
prepare_for_tests() {
  prepare_environment "$([[ ${1:-} == full ]] && echo checks || echo tests)"
  python=$(find_python)
  configure openmp "${1:-all}"
  [[ ${1:-} == full ]] || return 0
  [[ $route != debian ]] || unpack_kokkos serial
  configure serial all
  configure asan all
}

# build_tests openmp|serial|asan|more [full]: the second build is for what differs in it: the kernels on Serial, the drivers,
# and the package of the library. The third is for what reads foreign bytes. The last has what the first built.
build_tests() {
  case $1 in
    openmp) build openmp "$([[ ${2:-} == full ]] && echo all || echo kformer-tests)" ;;
    serial) build serial kformer_tests_serial kformer-drivers kformer-libraries ;;
    asan) build asan kformer_tests_fuzz ;;
    more) ;;
  esac
}

# configure openmp|serial|asan drivers|all|full: all is the drivers and the tests, full has perf/ too. A build of these serves
# for the drivers.
configure() {
  local folder options key what=$2
  folder=$(build_folder "$1")
  forget_without "$folder/build.ninja" "configure-$route-$1"
  if [[ $2 == drivers && -e $state/stamps/configure-$route-$1 ]]; then
    read -r what _ <"$state/stamps/configure-$route-$1"
    [[ $what == drivers ]] || python=$(find_python)
  fi
  mapfile -t options < <(build_options "$1" "$what")
  key="$what $(key_of "$folder" "$checkout" "${options[@]}")"
  once "configuring the $1 build" "configure-$route-$1" "$key" configure_anew "$folder" "${options[@]}"
}

# The cache of an earlier configuration would keep what it found then.
configure_anew() {
  rm -rf "$1/CMakeCache.txt" "$1/CMakeFiles"
  "${entry[@]}" cmake -S "$checkout" -B "$1" -G Ninja "${@:2}"
}

# build_options openmp|serial|asan drivers|all|full
build_options() {
  printf '%s\n' -DKformer_ENABLE_DRIVERS=ON -DKformer_ENABLE_BLAS=ON
  case $1 in
    # As the preset asan, with less optimisation and debug information, which take time.
    asan) printf '%s\n' -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-Og -g1 -fsanitize=address,undefined \
-fno-sanitize-recover=undefined -fno-omit-frame-pointer" ;;
    *) printf '%s\n' -DCMAKE_BUILD_TYPE=Release ;;
  esac
  case $2 in
    drivers) printf '%s\n' -DKformer_ENABLE_TESTS=OFF ;;
    *) printf '%s\n' -DKformer_ENABLE_TESTS=ON "-DPython3_EXECUTABLE=$python" \
      -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "-DKformer_ENABLE_PERF=$([[ $2 == full ]] && echo ON || echo OFF)" ;;
  esac
  local kokkos=${1/asan/openmp}
  case $route-$kokkos in
    debian-*)
      # GCC that rarely collects its garbage takes a tenth less time, for a tenth more memory.
      printf '%s\n' "-DCMAKE_CXX_FLAGS=--param ggc-min-heapsize=1000000"
      # An RPATH serves the libraries of a program too, of which Debian's Kokkos Kernels are in need; a RUNPATH does not.
      printf '%s\n' "-DCMAKE_PREFIX_PATH=$(kokkos_prefix "$kokkos")" -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
        -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
      ;;
    upstream-openmp) printf '%s\n' -DKformer_FETCH_DEPS=ON -DKokkos_ENABLE_OPENMP=ON -DKokkos_ENABLE_SERIAL=OFF ;;
    upstream-serial) printf '%s\n' -DKformer_FETCH_DEPS=ON -DKokkos_ENABLE_OPENMP=OFF ;;
  esac
  case $route-$kokkos in
    *-openmp) printf '%s\n' -DKformer_ENABLE_KOKKOS_KERNELS=OFF ;;
    found-serial) printf '%s\n' -DKformer_ENABLE_KOKKOS_KERNELS=AUTO ;;
    *-serial) printf '%s\n' -DKformer_ENABLE_KOKKOS_KERNELS=ON ;;
  esac
}

# build openmp|serial|asan TARGET...
build() {
  step "building ${*:2} ($1)" "build-$route-$1" build_in "$@"
}

# After a failure the next call configures anew: a faulty configuration cannot always mend itself.
build_in() {
  local state_of_sources stamp=$state/stamps/built-$route-$1
  rm -f "$stamp-$2"
  touch "$stamp.new"
  state_of_sources=$(revision)
  "${entry[@]}" cmake --build "$(build_folder "$1")" --parallel "$(compile_jobs)" --target "${@:2}" || {
    rm -f "$state/stamps/configure-$route-$1"
    return 1
  }
  # Older than what changes from here on, and even while the build ran.
  printf '%s\n' "$state_of_sources" | { cat >"$stamp-$2" && touch --reference="$stamp.new" "$stamp-$2"; }
}

# is_built openmp|serial DRIVER: whether DRIVER was built, alone or with the tests, from the sources as they are.
is_built() {
  local target stamp
  for target in "$2" kformer-tests all; do
    stamp=$state/stamps/built-$route-$1-$target
    if [[ -f $stamp && $(<"$stamp") == "$(revision)" && -z $(sources_newer_than "$stamp") ]]; then
      return
    fi
  done
  return 1
}

sources_newer_than() {
  (cd "$checkout" && find CMakeLists.txt cmake include src drivers -newer "$1" -print -quit)
}

# Results name it.
revision() {
  key_of "$("${entry[@]}" git -C "$checkout" rev-parse HEAD 2>&1)" \
    "$("${entry[@]}" git -C "$checkout" status --porcelain --untracked-files=no 2>&1)"
}

# One compile job takes up to 1.5 GB.
compile_jobs() {
  local by_memory jobs=${KFORMER_JOBS:-}
  if [[ -z $jobs ]]; then
    by_memory=$(awk '/^MemAvailable/ { print int($2 / 1.5e6) }' /proc/meminfo)
    jobs=$(nproc)
    ((jobs <= by_memory)) || jobs=$((by_memory > 0 ? by_memory : 1))
  fi
  printf '%s\n' "$jobs"
}
