# SPDX-License-Identifier: MIT
# The pinned upstream releases, with the hashes that Spack's recipes carry. FETCHCONTENT_SOURCE_DIR_KOKKOS and
# FETCHCONTENT_SOURCE_DIR_KOKKOSKERNELS name local sources instead, as always with FetchContent.
include(FetchContent)

FetchContent_Declare(
  Kokkos
  URL https://github.com/kokkos/kokkos/releases/download/5.1.1/kokkos-5.1.1.tar.gz
  URL_HASH SHA256=8bdbee0f0ac383436743ad8a9e3e928705b34b31a25a92dc5179c52a3aa98519)
FetchContent_Declare(
  KokkosKernels
  URL https://github.com/kokkos/kokkos-kernels/releases/download/5.1.1/kokkos-kernels-5.1.1.tar.gz
  URL_HASH SHA256=4415c2a6e14e2bba9aa978917d2ffbcbe32760d3aba3a33bf7a267d50e7e20c9)

macro(kformer_fetch_kokkos)
  # Kokkos alone would build Serial only.
  if(NOT DEFINED Kokkos_ENABLE_OPENMP)
    find_package(OpenMP QUIET COMPONENTS CXX)
    set(Kokkos_ENABLE_OPENMP ${OpenMP_CXX_FOUND} CACHE BOOL "Build Kokkos with OpenMP")
  endif()
  if(NOT DEFINED Kokkos_ENABLE_SERIAL)
    set(Kokkos_ENABLE_SERIAL ON CACHE BOOL "Build Kokkos with Serial")
  endif()
  message(STATUS "Kformer: building Kokkos from source")
  FetchContent_MakeAvailable(Kokkos)
endmacro()

macro(kformer_fetch_kokkos_kernels)
  # Only what a matrix product needs: seconds instead of half an hour.
  set(KokkosKernels_ADD_DEFAULT_ETI OFF CACHE BOOL "")
  set(KokkosKernels_ENABLE_ALL_COMPONENTS OFF CACHE BOOL "")
  set(KokkosKernels_ENABLE_COMPONENT_BLAS ON CACHE BOOL "")
  set(KokkosKernels_ENABLE_COMPONENT_BATCHED ON CACHE BOOL "")
  message(STATUS "Kformer: building Kokkos Kernels from source")
  FetchContent_MakeAvailable(KokkosKernels)
endmacro()
