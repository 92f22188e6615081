// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstdint>

#include "kformer/core/types/precision.hpp"

namespace kformer {

/// Which keys a query sees, and how scores are scaled; shared by `attention_*` and `standard_attention_*`.
///
/// Query `i` of `q_len` has position `p = i + kv_len − q_len` among the keys (bottom-right alignment). Scale and cap
/// become numbers of compute_t<T>; those that it does not hold are refused.
struct AttentionOptions {
  double scale = 0;         ///< factor on the scores; 0 means 1/√head_dim
  bool causal = false;      ///< hide keys `j > p`
  std::int64_t window = 0;  ///< hide keys with `|p − j| ≥ window`; 0 means no window
  double softcap = 0;       ///< c > 0 replaces a scaled score s by `c·tanh(s/c)`; flash attention only
  Precision compute = Precision::storage;  ///< whether flash attention may round weights to the storage type
  bool batch_invariant =
      false;  ///< forward: a query has the same bits whatever the other queries and sequences
              ///< are, and however many; few queries then take longer. Flash attention only
};

namespace Impl {

/// The factor on the scores. Without a head dimension every score is 0, whatever the factor.
inline double attention_scale(const AttentionOptions& options, std::int64_t head_dim) {
  if (options.scale != 0) return options.scale;
  return head_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
}

/// AttentionOptions for one problem, in the form that kernels need: query `i` sees keys `first(i) ≤ j <
/// end(i)`. Where a window hides nothing it is not added to a position: it may be of any size, and overflow.
struct Visibility {
  std::int64_t q_len, kv_len, window;
  bool causal;

  /// First visible key of query `i`; not below 0, may be ≥ `end(i)`: then the query sees none.
  KOKKOS_FUNCTION std::int64_t first(std::int64_t i) const {
    const std::int64_t p = i + kv_len - q_len;
    return window > 0 && window <= p ? p - window + 1 : 0;
  }
  /// One past the last visible key of query `i`; between 0 and `kv_len`.
  KOKKOS_FUNCTION std::int64_t end(std::int64_t i) const {
    const std::int64_t p = i + kv_len - q_len;
    std::int64_t last = kv_len;
    if (causal) last = Kokkos::min(last, p + 1);
    if (window > 0 && window < kv_len - p) last = Kokkos::min(last, p + window);
    return Kokkos::max<std::int64_t>(0, last);
  }
  /// Whether query `i` sees key `j`.
  KOKKOS_FUNCTION bool sees(std::int64_t i, std::int64_t j) const { return j >= first(i) && j < end(i); }
};

}  // namespace Impl
}  // namespace kformer
