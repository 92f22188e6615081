// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/isa.hpp"
#include "ops/common/simd/rows.hpp"

/// \file
/// The rotary embedding as the host's SIMD kernels see it. Free of Kokkos.

namespace kformer::Impl::host {

/// A (batch, token, head, feature) array with contiguous features.
struct RopeHeads {
  void* data;
  std::int64_t batch_stride, token_stride, head_stride, heads;
};

struct RopeArguments {
  RopeHeads q, k;
  InputRows cos, sin;  // in the type of arithmetic
  std::int64_t table_rows, half;
  std::int64_t seq;

  const std::int32_t* positions;  // null: `first_position` and what follows
  std::int64_t positions_batch_stride, first_position;
  int direction;  // −1 turns the angle round
};

/// The kernels of one instruction set and storage type, for tokens numbered `batch · seq + token`.
struct RopeKernels {
  void (*half_split)(const RopeArguments&, std::int64_t first_token, std::int64_t end);
  void (*interleaved)(const RopeArguments&, std::int64_t first_token, std::int64_t end);
};

template <Isa isa>
const RopeKernels& rope_kernels(DType storage);

}  // namespace kformer::Impl::host
