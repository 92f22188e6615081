// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/ops/attention.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "ops/attention/host/arguments.hpp"

/// \file
/// What both directions need to run SIMD kernels as teams of one thread: arguments without Kokkos types, and
/// the division of the work into tiles.

namespace kformer::Impl::host {

inline HeadArray heads_of(const TensorRef& x) { return {x.data, x.stride[0], x.stride[1], x.stride[2]}; }

/// q, k, v, lse, options and extras of either direction; `out` as well.
template <class Problem>
Arguments arguments_of(const Problem& p) {
  const AttentionExtraRefs& x = p.extras;
  Arguments a{};
  a.q_heads = p.q.extent[2];
  a.kv_heads = p.k.extent[2];
  a.group = a.kv_heads > 0 ? a.q_heads / a.kv_heads : 1;
  a.head_dim = static_cast<int>(p.q.extent[3]);
  a.v_head_dim = static_cast<int>(p.v.extent[3]);
  a.q = heads_of(p.q);
  a.k = heads_of(p.k);
  a.v = heads_of(p.v);
  a.out = heads_of(p.out);
  a.lse = p.lse.data;
  a.lse_batch_stride = p.lse.stride[0];
  a.lse_head_stride = p.lse.stride[1];
  a.lse_query_stride = p.lse.stride[2];
  a.scale = attention_scale(p.options, p.q.extent[3]);
  a.softcap = p.options.softcap;
  // A wider one hides no more, but its sum with a position may overflow.
  a.window = std::min(p.options.window, p.q.extent[1] + p.k.extent[1]);
  a.causal = p.options.causal;
  a.functor = p.functor;
  const auto stride = [](const TensorRef& ref, int r) { return ref.extent[r] == 1 ? 0 : ref.stride[r]; };
  if (x.bias.present()) {
    a.bias = x.bias.data;
    a.bias_batch_stride = stride(x.bias, 0);
    a.bias_head_stride = stride(x.bias, 1);
    a.bias_query_stride = stride(x.bias, 2);
  }
  if (x.alibi_slopes.present()) a.alibi_slopes = x.alibi_slopes.data;
  if (x.sinks.present()) a.sinks = x.sinks.data;
  if (x.block_mask.present()) {
    a.block_mask = static_cast<const std::int32_t*>(x.block_mask.data);
    a.block_batch_stride = stride(x.block_mask, 0);
    a.block_head_stride = stride(x.block_mask, 1);
    a.block_row_stride = stride(x.block_mask, 2);
    a.block_q = x.block_q;
    a.block_kv = x.block_kv;
  }
  return a;
}

/// The sequences of a problem, and the tiles of rows that theirs are cut into. On a host space what was
/// launched before is done, so the lengths of packed sequences can be read; while they do not all have memory, as
/// where a workspace is planned, they count as one sequence.
class Tiling {
 public:
  /// A sequence, and the number of one of its tiles.
  struct Tile {
    Sequence sequence;
    std::int64_t number;
  };

  template <class Problem>
  Tiling(const Problem& p, std::int64_t group, std::int64_t rows)
      : m_batches(p.q.extent[0]),
        m_q_len(p.q.extent[1]),
        m_kv_len(p.k.extent[1]),
        m_group(group),
        m_rows(rows) {
    if (p.extras.cu_seqlens_q.data != nullptr && p.extras.cu_seqlens_kv.data != nullptr) {
      m_q_starts = static_cast<const std::int32_t*>(p.extras.cu_seqlens_q.data);
      m_kv_starts = static_cast<const std::int32_t*>(p.extras.cu_seqlens_kv.data);
      m_sequences = p.extras.cu_seqlens_q.extent[0] - 1;
      for (std::int64_t n = 0; n < m_sequences; ++n) m_tiles += tiles_of(packed(n));
    } else {
      m_tiles = m_batches * ceil_div(m_q_len * m_group, m_rows);
    }
  }

  std::int64_t tiles() const { return m_tiles; }
  std::int64_t tiles_of(const Sequence& s) const { return ceil_div(s.q_len * m_group, m_rows); }

  /// The tiles of every sequence in order; the sequences of a batch take turns.
  Tile find(std::int64_t tile) const {
    if (!m_q_starts) return {{tile % m_batches, 0, m_q_len, 0, m_kv_len}, tile / m_batches};
    std::int64_t n = 0;
    while (tile >= tiles_of(packed(n))) tile -= tiles_of(packed(n++));
    return {packed(n), tile};
  }

  /// Calls `f` with every sequence that is not like the one before.
  template <class F>
  void for_each_kind(F f) const {
    if (!m_q_starts) return f(Sequence{0, 0, m_q_len, 0, m_kv_len});
    for (std::int64_t n = 0; n < m_sequences; ++n) f(packed(n));
  }

  RowRange range(const Tile& tile, std::int64_t kv_head) const {
    const std::int64_t begin = tile.number * m_rows;
    return {kv_head, begin, static_cast<int>(std::min(m_rows, tile.sequence.q_len * m_group - begin))};
  }

 private:
  Sequence packed(std::int64_t n) const {
    return {0, m_q_starts[n], m_q_starts[n + 1] - m_q_starts[n], m_kv_starts[n],
            m_kv_starts[n + 1] - m_kv_starts[n]};
  }

  std::int64_t m_batches, m_q_len, m_kv_len, m_group, m_rows, m_sequences = 0, m_tiles = 0;
  const std::int32_t *m_q_starts = nullptr, *m_kv_starts = nullptr;
};

}  // namespace kformer::Impl::host
