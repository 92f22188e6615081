// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "ops/common/cuda/instructions.hpp"

/// \file
/// What the Tensor Memory Accelerator (compute capability 9.0) needs to know about an array: 16-bit numbers in
/// four dimensions, of which it copies boxes to shared memory. A row of a box is 128 or 64 bytes, and the swizzle
/// is that of as many.

namespace kformer::Impl::cuda {

/// The first dimension is dense.
struct TensorShape {
  const void* data;
  std::uint64_t extent[4];
  std::uint64_t stride_bytes[4];  ///< multiples of 16; the first is ignored
  std::uint32_t box[4];           ///< the first is 64 or 32 numbers: the swizzle takes 128 or 64 bytes
};

#if defined(__CUDACC__)
/// As the driver encodes it; the layout is its own.
struct alignas(128) TensorMap {
  std::uint64_t opaque[16];
};
#else
struct TensorMap {
  TensorShape shape;
};
#endif

/// Reads outside of the array give zeros.
/// \throws Error if the driver refuses
TensorMap make_tensor_map(Half type, const TensorShape& shape);

}  // namespace kformer::Impl::cuda
