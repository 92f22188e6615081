// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/isa.hpp"
#include "ops/common/simd/rows.hpp"

/// \file
/// SwiGLU as the host's SIMD kernels see it. Free of Kokkos.

namespace kformer::Impl::host {

struct SwigluForwardArguments {
  InputRows gate, up;
  OutputRows y;
};

struct SwigluBackwardArguments {
  InputRows gate, up, dy;
  OutputRows dgate, dup;
};

/// The kernels of one instruction set and storage type.
struct SwigluKernels {
  void (*forward)(const SwigluForwardArguments&, const Block&);
  void (*backward)(const SwigluBackwardArguments&, const Block&);
};

template <Isa isa>
const SwigluKernels& swiglu_kernels(DType storage);

}  // namespace kformer::Impl::host
