// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "ops/common/simd/isa.hpp"

/// \file
/// The rows of standard attention's scores as the host's SIMD kernels see them. Free of Kokkos.

namespace kformer::Impl::host {

/// The scores of a query, which its probabilities replace.
struct ScoreRow {
  void* scores;
  const void* mask;  ///< added to the scores; null for none
  std::int64_t keys;
  std::int64_t first, end;  ///< the keys that the query sees
};

/// The kernels of one instruction set and storage type.
struct StandardAttentionKernels {
  /// Softmax over the keys that are seen; every other place becomes exactly 0.
  void (*softmax)(const ScoreRow&);
  /// dS = P ∘ (dP − Σ P ∘ dP), in place of dP.
  void (*score_gradient)(const void* probabilities, void* gradient, std::int64_t keys);
  /// Whether all of `n` numbers are finite.
  bool (*are_finite)(const void* numbers, std::int64_t n);
};

template <Isa isa>
const StandardAttentionKernels& standard_attention_kernels(DType storage);

}  // namespace kformer::Impl::host
