# SPDX-License-Identifier: MIT
# The two builds: openmp (without Kokkos Kernels) and serial (with it).

# build_folder openmp|serial
build_folder() { printf '%s\n' "$state/build-$route-$1"; }

prepare_for_tests() {
  prepare_environment test
  [[ $route != debian ]] || unpack_kokkos serial
  configure openmp
  configure serial
}

build_drivers() {
  configure openmp
  build openmp kformer-drivers
}

build_tests() {
  build openmp all
  build serial all
}

configure() {
  local folder options
  folder=$(build_folder "$1")
  mapfile -t options < <(build_options "$1")
  [[ -f $folder/build.ninja ]] || rm -f "$state/stamps/configure-$route-$1"
  once "configuring the $1 build" "configure-$route-$1" "$(key_of "$folder" "$checkout" "${options[@]}")" \
    configure_anew "$folder" "${options[@]}"
}

# The cache of an earlier configuration would keep what it found then.
configure_anew() {
  rm -rf "$1/CMakeCache.txt" "$1/CMakeFiles"
  "${entry[@]}" cmake -S "$checkout" -B "$1" -G Ninja "${@:2}"
}

build_options() {
  printf '%s\n' -DCMAKE_BUILD_TYPE=Release -DKformer_ENABLE_DRIVERS=ON -DKformer_ENABLE_TESTS=ON \
    -DKformer_ENABLE_BLAS=ON "-DPython3_EXECUTABLE=$python"
  case $route-$1 in
    debian-*)
      # An RPATH serves the libraries of a program too, of which Debian's Kokkos Kernels are in need; a RUNPATH does not.
      printf '%s\n' "-DCMAKE_PREFIX_PATH=$(kokkos_prefix "$1")" -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags \
        -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
      ;;
    upstream-openmp) printf '%s\n' -DKformer_FETCH_DEPS=ON -DKokkos_ENABLE_OPENMP=ON -DKokkos_ENABLE_SERIAL=OFF ;;
    upstream-serial) printf '%s\n' -DKformer_FETCH_DEPS=ON -DKokkos_ENABLE_OPENMP=OFF ;;
  esac
  case $route-$1 in
    *-openmp) printf '%s\n' -DKformer_ENABLE_KOKKOS_KERNELS=OFF ;;
    found-serial) printf '%s\n' -DKformer_ENABLE_KOKKOS_KERNELS=AUTO ;;
    *-serial) printf '%s\n' -DKformer_ENABLE_KOKKOS_KERNELS=ON ;;
  esac
}

# build openmp|serial TARGET
build() {
  step "building $2 ($1)" "build-$route-$1" build_in "$(build_folder "$1")" "$1" "$2"
}

# After a failure the next call configures anew: a faulty configuration cannot always mend itself.
build_in() {
  "${entry[@]}" cmake --build "$1" --parallel "$(compile_jobs)" --target "$3" || {
    rm -f "$state/stamps/configure-$route-$2"
    return 1
  }
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
