# SPDX-License-Identifier: MIT
# kformer_add_fma_kernels(<target>): the multiply-add loops that measure a processor's peak, one per instruction set. Which
# one runs is decided at run time.
function(kformer_add_fma_kernels target)
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/drivers/common/fma_kernel.cpp)
  kformer_add_fma_kernel(${target} baseline baseline)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
    kformer_add_fma_kernel(${target} avx2 avx2+fma -mavx2 -mfma)
    kformer_add_fma_kernel(${target} avx512 avx512f -mavx512f)
    target_compile_definitions(${target} PRIVATE KFORMER_FMA_X86)
  endif()
endfunction()

# kformer_add_fma_kernel(<target> <variant> <isa> <flag>...)
function(kformer_add_fma_kernel target variant isa)
  add_library(kformer_fma_${variant} OBJECT ${PROJECT_SOURCE_DIR}/drivers/common/fma_kernel_isa.cpp)
  target_compile_features(kformer_fma_${variant} PRIVATE cxx_std_20)
  target_include_directories(kformer_fma_${variant} PRIVATE ${PROJECT_SOURCE_DIR}/drivers)
  target_compile_definitions(kformer_fma_${variant} PRIVATE KFORMER_FMA_NAMESPACE=fma_${variant} KFORMER_FMA_ISA="${isa}")
  target_compile_options(kformer_fma_${variant} PRIVATE -O2 -ffp-contract=fast ${ARGN})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:kformer_fma_${variant}>)
endfunction()
