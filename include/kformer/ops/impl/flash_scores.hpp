// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

#include "kformer/core/tensor_ref.hpp"
#include "kformer/ops/attention_extras.hpp"
#include "kformer/ops/attention_index.hpp"
#include "kformer/ops/attention_options.hpp"
#include "kformer/ops/impl/soft_cap.hpp"

/// \file
/// What the portable flash kernels do with a score. A kind of scores defines, for the pairs that see each other
/// by position, which are hidden nevertheless, and how a scaled score changes:
///
/// * `plain`: nothing of the kind; kernels then scale only, and the rest is not called;
/// * `hides()`: whether any pair may be hidden;
/// * `keys(rows)`: the keys that any of these queries may see;
/// * `skips(team, b, h, i0, rows, j0, cols)`: whether all pairs of a tile are hidden, the same answer on every
///   thread;
/// * `sees(pair)`: whether a pair within `keys` of its query is visible;
/// * `apply(scaled, pair, shift)`: the score, where query `i` stands at position `i + shift`;
/// * `derivative(scaled, pair, shift)`, `derivative_by_bias(scaled, pair, shift)`: of the score, by the scaled
///   score and by the bias;
/// * `gradient(dscore, scaled, pair, shift)`: receives the gradient of the score of each visible pair once.

namespace kformer::Impl {

/// Scores that are scaled, and hidden only by position.
struct PlainScores {
  static constexpr bool plain = true;
};

/// Which blocks of pairs are visible.
struct BlockMask {
  Strided<const std::int32_t, 4> blocks;  ///< extents of 1 have stride 0
  std::int64_t block_q, block_kv;
  bool present;

  KOKKOS_FUNCTION bool sees(const AttentionIndex& x) const {
    return !present || blocks(x.batch, x.head, x.query / block_q, x.key / block_kv) != 0;
  }
  /// Whether all blocks that a tile touches are 0.
  template <class Member>
  KOKKOS_FUNCTION bool skips(const Member& team, std::int64_t b, std::int64_t h, std::int64_t i0, int rows,
                             std::int64_t j0, int cols) const {
    if (!present) return false;
    const std::int64_t first_q = i0 / block_q, first_kv = j0 / block_kv;
    const int wide = static_cast<int>((j0 + cols - 1) / block_kv - first_kv) + 1;
    const int blocks_in_tile = (static_cast<int>((i0 + rows - 1) / block_q - first_q) + 1) * wide;
    int seen = 0;
    Kokkos::parallel_reduce(
        Kokkos::TeamVectorRange(team, blocks_in_tile),
        [&](int n, int& sum) { sum += blocks(b, h, first_q + n / wide, first_kv + n % wide) != 0; }, seen);
    return seen == 0;
  }
};

/// A tensor whose extents of 1 broadcast, except the last.
template <class T>
Strided<const T, 4> broadcast(const TensorRef& ref) {
  auto s = ref.as<const T, 4>();
  for (int r = 0; r < 3; ++r)
    if (s.extent[r] == 1) s.stride[r] = 0;
  return s;
}

/// Scores with any of soft cap, ALiBi, bias and block mask.
template <class T>
struct ExtraScores {
  using C = compute_t<T>;
  static constexpr bool plain = false;

  SoftCap<C> softcap;
  Strided<const C, 1> slopes;
  Strided<const T, 4> bias;
  BlockMask block_mask;
  bool has_slopes, has_bias;

  KOKKOS_FUNCTION bool hides() const { return has_bias || block_mask.present; }
  KOKKOS_FUNCTION KeyRange keys(const AttentionRows&) const { return {0, INT64_MAX}; }
  template <class Member>
  KOKKOS_FUNCTION bool skips(const Member& team, std::int64_t b, std::int64_t h, std::int64_t i0, int rows,
                             std::int64_t j0, int cols) const {
    return block_mask.skips(team, b, h, i0, rows, j0, cols);
  }
  KOKKOS_FUNCTION bool sees(const AttentionIndex& x) const {
    return block_mask.sees(x) && (!has_bias || added(x) != -Kokkos::Experimental::infinity_v<C>);
  }
  KOKKOS_FUNCTION C apply(C scaled, const AttentionIndex& x, std::int64_t shift) const {
    C s = softcap.apply(scaled);
    if (has_slopes) s -= slopes(x.head) * static_cast<C>(Kokkos::abs(x.query + shift - x.key));
    return has_bias ? s + added(x) : s;
  }
  KOKKOS_FUNCTION C derivative(C scaled, const AttentionIndex&, std::int64_t) const {
    return softcap.derivative(scaled);
  }
  KOKKOS_FUNCTION C derivative_by_bias(C, const AttentionIndex&, std::int64_t) const { return C(1); }
  KOKKOS_FUNCTION void gradient(C, C, const AttentionIndex&, std::int64_t) const {}

 private:
  KOKKOS_FUNCTION C added(const AttentionIndex& x) const {
    return static_cast<C>(bias(x.batch, x.head, x.query, x.key));
  }
};

/// Whether any operand or option makes scores more than plain.
inline bool has_extra_scores(const AttentionOptions& options, const AttentionExtraRefs& x) {
  return options.softcap > 0 || x.alibi_slopes.present() || x.bias.present() || x.block_mask.present();
}

template <class T>
ExtraScores<T> extra_scores(const AttentionOptions& options, const AttentionExtraRefs& x) {
  using C = compute_t<T>;
  return {{static_cast<C>(options.softcap)},
          x.alibi_slopes.as<const C, 1>(),
          broadcast<T>(x.bias),
          {broadcast<std::int32_t>(x.block_mask), x.block_q, x.block_kv, x.block_mask.present()},
          x.alibi_slopes.present(),
          x.bias.present()};
}

}  // namespace kformer::Impl
