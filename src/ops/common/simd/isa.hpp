// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/dtype.hpp"

/// \file
/// The instruction sets that SIMD kernels are compiled for. A block's `host/kernels.cpp` is compiled once for
/// each, with KFORMER_ISA defined as its name, and instantiates a table of functions for it:
///
///     template <Isa isa> const RmsNormKernels& rms_norm_kernels(DType storage);
///
/// Free of Kokkos, so that files compiled for one instruction set contain nothing that the linker could share
/// with others.

namespace kformer::Impl::host {

/// `avx512_bf16` multiplies pairs of bf16, twice as many per instruction as AVX-512 multiplies floats, and
/// `avx512_vnni` four bytes at once.
enum class Isa { avx512_bf16, avx512_vnni, avx512, avx2, generic };

/// Whether kernels of the instruction set are in this build.
template <Isa isa>
inline constexpr bool is_built =
#if defined(__x86_64__)
    true;
#else
    isa == Isa::generic;
#endif

/// The instruction set whose table is used in place of `isa`: entries of others refuse before they use it.
template <Isa isa>
inline constexpr Isa built = is_built<isa> ? isa : Isa::generic;

}  // namespace kformer::Impl::host
