# SPDX-License-Identifier: MIT
# Where Kokkos comes from: found by CMake on this machine, the pinned upstream releases, or Debian's packages.

# Sets `route`, and remembers it for the next call with the same hints.
choose_route() {
  local key
  key=$(key_of "${KFORMER_ROUTE:-}" "${CMAKE_PREFIX_PATH:-}" "${Kokkos_ROOT:-}" "${Kokkos_DIR:-}")
  if [[ -f $state/route && $(<"$state/route") == "$key "* ]]; then
    read -r _ route <"$state/route"
    return
  fi
  needs_lock
  route=${KFORMER_ROUTE:-}
  case $route in
    found) require_found_kokkos ;;
    upstream | debian) ;;
    "") find_route ;;
    *) die "KFORMER_ROUTE is '$route'; it must be found, upstream or debian" ;;
  esac
  printf '%s %s\n' "$key" "$route" >"$state/route.new"
  mv "$state/route.new" "$state/route"
}

find_route() {
  if kokkos_is_hinted; then
    install_build_tools
  fi
  if cmake_finds_kokkos; then
    route=found
    say "Kokkos: the one that CMake finds on this machine"
  elif upstream_answers; then
    route=upstream
    say "Kokkos: none found by CMake; taking the pinned upstream releases"
  else
    route=debian
    say "Kokkos: none found by CMake and upstream does not answer; taking Debian's packages"
  fi
}

kokkos_is_hinted() { [[ -n ${CMAKE_PREFIX_PATH:-}${Kokkos_ROOT:-}${Kokkos_DIR:-} ]]; }

require_found_kokkos() {
  install_build_tools
  cmake_finds_kokkos || die "KFORMER_ROUTE=found, but CMake finds no Kokkos >= 4.6 here; set Kokkos_ROOT or" \
    "CMAKE_PREFIX_PATH to its prefix. What CMake said: $state/logs/find-kokkos.log"
}

# CMake and a compiler must be there before CMake can be asked.
install_build_tools() {
  command -v cmake >/dev/null && command -v c++ >/dev/null || install_on_machine build
}

cmake_finds_kokkos() {
  local probe=$state/find-kokkos
  command -v cmake >/dev/null && command -v c++ >/dev/null || return 1
  rm -rf "$probe" && mkdir "$probe" || return
  cat >"$probe/CMakeLists.txt" <<'EOF'
cmake_minimum_required(VERSION 3.25)
project(find_kokkos LANGUAGES CXX)
find_package(Kokkos CONFIG REQUIRED)
if(Kokkos_VERSION VERSION_LESS 4.6)
  message(FATAL_ERROR "Kokkos ${Kokkos_VERSION} in ${Kokkos_DIR} is older than 4.6")
endif()
EOF
  cmake -S "$probe" -B "$probe/build" >"$state/logs/find-kokkos.log" 2>&1
}

upstream_answers() {
  if command -v curl >/dev/null; then
    curl --silent --head --fail --location --max-time 5 --output /dev/null https://github.com/kokkos/kokkos
  else
    timeout 5 bash -c 'exec 3<>/dev/tcp/github.com/443' 2>/dev/null
  fi
}
