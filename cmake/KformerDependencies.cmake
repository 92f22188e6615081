# SPDX-License-Identifier: MIT
# Kokkos: a target that is already there, then find_package, then (Kformer_FETCH_DEPS) the pinned upstream release.

# Sources that somebody names for FetchContent are meant to be used.
if(NOT TARGET Kokkos::kokkos AND NOT (Kformer_FETCH_DEPS AND FETCHCONTENT_SOURCE_DIR_KOKKOS))
  find_package(Kokkos CONFIG QUIET)
  if(Kokkos_FOUND AND Kokkos_VERSION VERSION_LESS 4.6)
    message(FATAL_ERROR "Kformer needs Kokkos 4.6 or newer; CMake found ${Kokkos_VERSION} in ${Kokkos_DIR}. "
                        "Name another with -DKokkos_ROOT=PREFIX.")
  endif()
endif()

if(NOT TARGET Kokkos::kokkos)
  if(NOT Kformer_FETCH_DEPS)
    message(FATAL_ERROR "Kformer needs Kokkos 4.6 or newer and CMake did not find it. Name its prefix with "
                        "-DKokkos_ROOT=PREFIX, or take the pinned upstream release with -DKformer_FETCH_DEPS=ON.")
  endif()
  include(KformerFetch)
  kformer_fetch_kokkos()
endif()

# The execution spaces of this Kokkos, as they are called in C++.
set(Kformer_SPACES "")
foreach(space IN ITEMS OpenMP Serial Threads Cuda HIP SYCL)
  string(TOUPPER ${space} upper)
  # An installed Kokkos lists its devices; one that is built with us has its options.
  if(upper IN_LIST Kokkos_DEVICES OR (NOT Kokkos_DEVICES AND Kokkos_ENABLE_${upper}))
    list(APPEND Kformer_SPACES ${space})
  endif()
endforeach()
if(NOT Kformer_SPACES)
  message(FATAL_ERROR "Kformer found no execution space in this Kokkos (Kokkos_DEVICES is '${Kokkos_DEVICES}').")
endif()
message(STATUS "Kformer: Kokkos ${Kokkos_VERSION} (${Kformer_SPACES})")

# hipcc compiles each file twice, for host and device, which no precompiled header is for. It would do so with files that are
# free of Kokkos too: they are C++. For the others Kokkos' own options, which come later, say that they are HIP.
if("HIP" IN_LIST Kformer_SPACES)
  if(Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE)
    message(FATAL_ERROR "This Kokkos has HIP as a language of CMake, which Kformer knows for CUDA alone. Build Kokkos with hipcc "
                        "and -DKokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE=OFF.")
  endif()
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-xc++>)
endif()

# A Kokkos with CUDA is compiled either through nvcc_wrapper (as CMAKE_CXX_COMPILER) or as CMake's CUDA language.
set(Kformer_CUDA_LANGUAGE OFF)
if("Cuda" IN_LIST Kformer_SPACES AND Kokkos_ENABLE_COMPILE_AS_CMAKE_LANGUAGE)
  enable_language(CUDA)
  set(Kformer_CUDA_LANGUAGE ON)
endif()

# Matrix products on CUDA.
set(Kformer_CUBLASLT_TARGET "")
if("Cuda" IN_LIST Kformer_SPACES)
  find_package(CUDAToolkit REQUIRED)
  set(Kformer_CUBLASLT_TARGET CUDA::cublasLt)
  if(Kformer_STATIC_CUBLASLT)
    set(Kformer_CUBLASLT_TARGET CUDA::cublasLt_static)
  endif()
  if(NOT TARGET ${Kformer_CUBLASLT_TARGET})
    message(FATAL_ERROR "Kokkos has CUDA and CMake did not find ${Kformer_CUBLASLT_TARGET} in the CUDA toolkit "
                        "${CUDAToolkit_LIBRARY_ROOT}. Install cuBLAS, or name another toolkit with -DCUDAToolkit_ROOT=PREFIX.")
  endif()
  message(STATUS "Kformer: cuBLASLt: ${Kformer_CUBLASLT_TARGET}")
endif()

if(Kformer_ENABLE_BLAS)
  find_package(BLAS)
  if(NOT BLAS_FOUND)
    message(FATAL_ERROR "Kformer_ENABLE_BLAS is ON and CMake found no BLAS. Install one (OpenBLAS's OpenMP build is "
                        "best: docs/blocks/linear.md), or build with -DKformer_ENABLE_BLAS=OFF.")
  endif()
endif()

# Kokkos Kernels comes under two target names.
set(Kformer_KOKKOS_KERNELS_TARGET "")
if(NOT Kformer_ENABLE_KOKKOS_KERNELS STREQUAL OFF)
  if(NOT TARGET Kokkos::kokkoskernels AND NOT TARGET KokkosKernels::all_libs
     AND NOT (Kformer_FETCH_DEPS AND FETCHCONTENT_SOURCE_DIR_KOKKOSKERNELS))
    find_package(KokkosKernels CONFIG QUIET)
    if(NOT KokkosKernels_FOUND AND Kformer_FETCH_DEPS AND Kformer_ENABLE_KOKKOS_KERNELS STREQUAL ON)
      include(KformerFetch)
      kformer_fetch_kokkos_kernels()
    endif()
  elseif(NOT TARGET Kokkos::kokkoskernels AND NOT TARGET KokkosKernels::all_libs)
    include(KformerFetch)
    kformer_fetch_kokkos_kernels()
  endif()
  foreach(name IN ITEMS Kokkos::kokkoskernels KokkosKernels::all_libs)
    if(TARGET ${name} AND NOT Kformer_KOKKOS_KERNELS_TARGET)
      set(Kformer_KOKKOS_KERNELS_TARGET ${name})
    endif()
  endforeach()
  if(Kformer_ENABLE_KOKKOS_KERNELS STREQUAL ON AND NOT Kformer_KOKKOS_KERNELS_TARGET)
    message(FATAL_ERROR "Kformer_ENABLE_KOKKOS_KERNELS is ON and CMake did not find Kokkos Kernels. Name its prefix with "
                        "-DKokkosKernels_ROOT=PREFIX, or choose AUTO or OFF.")
  endif()
endif()
message(STATUS "Kformer: Kokkos Kernels: ${Kformer_KOKKOS_KERNELS_TARGET}, host BLAS: ${Kformer_ENABLE_BLAS}")
