// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kformer/core/scalar.hpp"
#include "kformer/ops/attention_options.hpp"
#include "ops/common/host_tensor.hpp"

/// \file
/// A model of a flash kernel that may have a fault, for the tests of the tolerance rule.

namespace kformer::Testing {

/// What is wrong with a kernel. The mask is wrong by one key at its end: the diagonal, or the last key.
enum class Mutation { none, lost_tile, lost_key, one_key_less, one_key_more, scale };
inline constexpr std::array mutation_names{"correct",
                                           "a tile of 64 keys lost",
                                           "a key lost",
                                           "the mask one key short",
                                           "the mask one key long",
                                           "the scale 1 % off"};

/// Flash attention in plain C++: tiles of 64 keys, online softmax, accumulators of `compute_t<T>`, probabilities and results
/// rounded to T. Each query head has keys and values of its own. Forward and backward have the same fault.
template <class T>
class FlashModel {
 public:
  using C = compute_t<T>;
  using Heads = Impl::HostTensor<C>;  ///< (1, seq, heads, head_dim)
  using Results = Impl::HostTensor<double>;

  /// What backward reads, `lse` as (1, heads, q_len).
  struct Saved {
    Results out, lse;
  };
  struct Gradients {
    Results q, k, v;
  };

  /// The operands must outlive it.
  FlashModel(const Heads& q, const Heads& k, const Heads& v, const AttentionOptions& options, Mutation mutation)
      : m_q(q),
        m_k(k),
        m_v(v),
        m_mutation(mutation),
        m_scale(static_cast<C>(Impl::attention_scale(options, q.extent(3))) *
                (mutation == Mutation::scale ? C(1.01) : C(1))),
        m_visibility{q.extent(1), k.extent(1), options.window, options.causal} {}

  Saved forward() const {
    Saved all{Results({1, q_len(), heads(), dim()}), Results({1, heads(), q_len()})};
    for (std::int64_t h = 0; h < heads(); ++h)
      for (std::int64_t i = 0; i < q_len(); ++i) forward(i, h, all);
    return all;
  }

  /// \param saved of a forward pass, which may be another's
  Gradients backward(const Saved& saved, const Heads& dout) const {
    Heads dq({1, q_len(), heads(), dim()}), dk({1, kv_len(), heads(), dim()}),
        dv({1, kv_len(), heads(), dim()});
    for (std::int64_t h = 0; h < heads(); ++h)
      for (std::int64_t i = 0; i < q_len(); ++i) {
        const auto lse = static_cast<C>(saved.lse(0, h, i));
        C delta = 0;
        for (std::int64_t d = 0; d < dim(); ++d)
          delta += dout(0, i, h, d) * static_cast<C>(saved.out(0, i, h, d));
        for_each_tile(i, [&](const std::vector<std::int64_t>& keys) {
          for (const std::int64_t j : keys) {
            if (j >= kv_len()) continue;  // of zeros come no gradients
            const C p = std::exp(score(i, j, h) - lse);
            C dp = 0;
            for (std::int64_t d = 0; d < dim(); ++d) dp += dout(0, i, h, d) * m_v(0, j, h, d);
            const C ds = Impl::stored<T>(p * (dp - delta));
            for (std::int64_t d = 0; d < dim(); ++d) {
              dv(0, j, h, d) += Impl::stored<T>(p) * dout(0, i, h, d);
              dk(0, j, h, d) += m_scale * ds * m_q(0, i, h, d);
              dq(0, i, h, d) += m_scale * ds * m_k(0, j, h, d);
            }
          }
        });
      }
    return {rounded(dq), rounded(dk), rounded(dv)};
  }

 private:
  std::int64_t q_len() const { return m_q.extent(1); }
  std::int64_t kv_len() const { return m_k.extent(1); }
  std::int64_t heads() const { return m_q.extent(2); }
  std::int64_t dim() const { return m_q.extent(3); }

  /// The keys that query `i` sees, tile by tile. Those from `kv_len` on are the padding of the last tile, zeros.
  template <class Tile>
  void for_each_tile(std::int64_t i, Tile each) const {
    constexpr std::int64_t tile = 64;
    const std::int64_t tiles = (kv_len() + tile - 1) / tile;
    const std::int64_t end =
        m_visibility.end(i) + (m_mutation == Mutation::one_key_more) - (m_mutation == Mutation::one_key_less);
    std::vector<std::int64_t> keys;
    for (std::int64_t t = 0; t * tile < end; ++t) {
      if (m_mutation == Mutation::lost_tile && t == tiles / 2) continue;
      keys.clear();
      for (std::int64_t j = t * tile; j < std::min(end, (t + 1) * tile); ++j)
        if (m_mutation != Mutation::lost_key || j != kv_len() / 2) keys.push_back(j);
      if (!keys.empty()) each(keys);
    }
  }

  C score(std::int64_t i, std::int64_t j, std::int64_t h) const {
    C dot = 0;
    for (std::int64_t d = 0; d < dim() && j < kv_len(); ++d) dot += m_q(0, i, h, d) * m_k(0, j, h, d);
    return m_scale * dot;
  }

  void forward(std::int64_t i, std::int64_t h, Saved& all) const {
    C highest = -std::numeric_limits<C>::infinity(), sum = 0;
    std::vector<C> total(static_cast<std::size_t>(dim()), C(0)), scores;
    for_each_tile(i, [&](const std::vector<std::int64_t>& keys) {
      scores.clear();
      for (const std::int64_t j : keys) scores.push_back(score(i, j, h));
      const C before = highest;
      highest = std::max(highest, *std::ranges::max_element(scores));
      const C rescale = std::exp(before - highest);
      sum *= rescale;
      for (C& x : total) x *= rescale;
      for (std::size_t n = 0; n < keys.size(); ++n) {
        const C p = std::exp(scores[n] - highest);
        sum += p;
        for (std::int64_t d = 0; d < dim() && keys[n] < kv_len(); ++d)
          total[d] += Impl::stored<T>(p) * m_v(0, keys[n], h, d);
      }
    });
    for (std::int64_t d = 0; d < dim(); ++d)
      all.out(0, i, h, d) = Impl::stored<T>(sum == 0 ? C(0) : total[d] / sum);
    all.lse(0, h, i) = highest + std::log(sum);
  }

  Results rounded(const Heads& t) const {
    Results r({1, t.extent(1), t.extent(2), t.extent(3)});
    std::ranges::transform(t.values(), r.values().begin(), [](C x) { return Impl::stored<T>(x); });
    return r;
  }

  const Heads &m_q, &m_k, &m_v;
  Mutation m_mutation;
  C m_scale;
  Impl::Visibility m_visibility;
};

}  // namespace kformer::Testing
