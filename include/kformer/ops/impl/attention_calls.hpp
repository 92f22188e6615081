// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention_index.hpp"

/// \file
/// A user's functor as compiled kernels of host spaces see it: calls into the user's program. Free of Kokkos.

namespace kformer::Impl {

/// Function pointers are null where the functor has no such member. C is the type of arithmetic.
struct AttentionCalls {
  const void* functor;
  bool wants_gradients;  ///< of its scores: only the portable kernel passes them on
  bool changes_scores;   ///< else `finish` hides alone, and scores may be without their scale

  KeyRange (*keys)(const void* functor, const AttentionRows& rows);
  /// Scores (C) of one query and `count` keys from `first`, `stride` apart: hidden ones become −∞, those that
  /// are −∞ already stay. Derivatives (C), if not null, are multiplied by those of the functor.
  void (*finish)(const void* functor, const AttentionIndex& first, int count, void* scores, std::int64_t stride,
                 void* derivatives, std::int64_t derivative_stride);
};

}  // namespace kformer::Impl
