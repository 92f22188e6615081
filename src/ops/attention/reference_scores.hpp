// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "kformer/ops/attention_extras.hpp"
#include "kformer/ops/attention_options.hpp"
#include "ops/common/host_tensor.hpp"

/// \file
/// The scores of attention's reference: which keys a query sees, and what its scores are.

namespace kformer::Impl::reference {

/// The optional operands of attention; each may be absent.
template <class Real>
struct AttentionExtraTensors {
  HostTensor<Real> bias, alibi_slopes, sinks, cu_seqlens_q, cu_seqlens_kv, block_mask;
  std::int64_t block_q = 0, block_kv = 0;
};

template <class Real>
AttentionExtraTensors<Real> read_extras(const AttentionExtraRefs& x) {
  return {.bias = read_tensor<Real>(x.bias),
          .alibi_slopes = read_tensor<Real>(x.alibi_slopes),
          .sinks = read_tensor<Real>(x.sinks),
          .cu_seqlens_q = read_tensor<Real>(x.cu_seqlens_q),
          .cu_seqlens_kv = read_tensor<Real>(x.cu_seqlens_kv),
          .block_mask = read_tensor<Real>(x.block_mask),
          .block_q = x.block_q,
          .block_kv = x.block_kv};
}

/// The element of `t` for the given pair, where extents of 1 broadcast.
template <class Real>
std::array<std::int64_t, 4> broadcast_index(const HostTensor<Real>& t, std::int64_t b, std::int64_t h,
                                            std::int64_t i, std::int64_t j) {
  return {t.extent(0) == 1 ? 0 : b, t.extent(1) == 1 ? 0 : h, t.extent(2) == 1 ? 0 : i, j};
}

/// `Store` is the type of scores in memory: the naive flash attention never writes them.
template <class Real, class Store = Real>
class AttentionScores {
 public:
  AttentionScores(const HostTensor<Real>& q, const HostTensor<Real>& k,
                  const AttentionExtraTensors<Real>& extras, const AttentionOptions& options)
      : m_extras(extras),
        m_scale(static_cast<Real>(attention_scale(options, q.extent(3)))),
        m_softcap(static_cast<Real>(options.softcap)),
        m_sequence_of(static_cast<std::size_t>(q.extent(1)), 0) {
    if (!extras.cu_seqlens_q.present()) {
      m_sequences.push_back({0, 0, {q.extent(1), k.extent(1), options.window, options.causal}});
      return;
    }
    const auto start = [](const HostTensor<Real>& t, std::int64_t n) {
      return static_cast<std::int64_t>(t(n));
    };
    for (std::int64_t n = 0; n + 1 < extras.cu_seqlens_q.extent(0); ++n) {
      const std::int64_t i0 = start(extras.cu_seqlens_q, n), i1 = start(extras.cu_seqlens_q, n + 1);
      const std::int64_t j0 = start(extras.cu_seqlens_kv, n), j1 = start(extras.cu_seqlens_kv, n + 1);
      for (std::int64_t i = i0; i < i1; ++i) m_sequence_of[static_cast<std::size_t>(i)] = m_sequences.size();
      m_sequences.push_back({i0, j0, {i1 - i0, j1 - j0, options.window, options.causal}});
    }
  }

  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const Sequence& s = sequence_of(i);
    return s.visibility.sees(i - s.first_query, j - s.first_key) && in_block(b, h, i, j) &&
           bias(b, h, i, j) != -std::numeric_limits<Real>::infinity();
  }
  /// The keys that a query sees.
  std::vector<std::int64_t> keys(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t kv_len) const {
    std::vector<std::int64_t> seen;
    for (std::int64_t j = 0; j < kv_len; ++j)
      if (sees(b, h, i, j)) seen.push_back(j);
    return seen;
  }

  Real scale() const { return m_scale; }
  /// The score of a pair with q·k = `dot`.
  Real score(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, Real dot) const {
    Real s = stored<Store>(m_scale * dot);
    if (m_softcap > 0) s = stored<Store>(m_softcap * tanh(s / m_softcap));
    if (m_extras.alibi_slopes.present()) s = stored<Store>(s - m_extras.alibi_slopes(h) * distance(i, j));
    return m_extras.bias.present() ? stored<Store>(s + bias(b, h, i, j)) : s;
  }
  /// The derivative of that score by the scaled one.
  Real derivative(Real dot) const {
    if (m_softcap == 0) return 1;
    const Real t = tanh(stored<Store>(m_scale * dot) / m_softcap);
    return stored<Store>(1 - t * t);
  }
  /// The score that takes part in every softmax and has no value.
  Real sink(std::int64_t h) const {
    return m_extras.sinks.present() ? m_extras.sinks(h) : -std::numeric_limits<Real>::infinity();
  }

 private:
  struct Sequence {
    std::int64_t first_query, first_key;
    Visibility visibility;
  };

  const Sequence& sequence_of(std::int64_t i) const {
    return m_sequences[m_sequence_of[static_cast<std::size_t>(i)]];
  }
  Real distance(std::int64_t i, std::int64_t j) const {
    const Sequence& s = sequence_of(i);
    return static_cast<Real>(
        std::abs(i - s.first_query + s.visibility.kv_len - s.visibility.q_len - (j - s.first_key)));
  }
  Real bias(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    if (!m_extras.bias.present()) return Real(0);
    const auto at = broadcast_index(m_extras.bias, b, h, i, j);
    return m_extras.bias(at[0], at[1], at[2], at[3]);
  }
  bool in_block(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const HostTensor<Real>& mask = m_extras.block_mask;
    if (!mask.present()) return true;
    return mask(mask.extent(0) == 1 ? 0 : b, mask.extent(1) == 1 ? 0 : h, i / m_extras.block_q,
                j / m_extras.block_kv) != Real(0);
  }

  const AttentionExtraTensors<Real>& m_extras;
  Real m_scale, m_softcap;
  std::vector<Sequence> m_sequences;
  std::vector<std::size_t> m_sequence_of;
};

}  // namespace kformer::Impl::reference
