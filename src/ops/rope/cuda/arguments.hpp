// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/launch.hpp"
#include "ops/common/cuda/vectors.hpp"
#include "ops/rope/host/arguments.hpp"

/// \file
/// The rotary embedding as the CUDA kernels see it. Free of Kokkos.

namespace kformer::Impl::cuda {

using host::RopeArguments;
using host::RopeHeads;

/// Heads that a thread rotates by the same cosines and sines.
inline constexpr int rope_heads_per_thread = 4;

/// Which heads go together in a thread: `groups` of them, with every `groups`-th head.
inline std::int64_t rope_groups(std::int64_t heads) {
  return (heads + rope_heads_per_thread - 1) / rope_heads_per_thread;
}

/// Rotates q and k. \throws std::runtime_error if CUDA refuses the launch
void rope_rotate(const char* label, Stream stream, DType type, bool half_split, const RopeArguments& a,
                 std::int64_t tokens);

}  // namespace kformer::Impl::cuda
