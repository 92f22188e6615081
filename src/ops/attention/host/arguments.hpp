// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "kformer/ops/impl/attention_calls.hpp"
#include "ops/common/simd/isa.hpp"

/// \file
/// Attention as the host's SIMD kernels see it: addresses, strides in elements, numbers. Free of Kokkos.

namespace kformer::Impl::host {

/// A (batch, token, head, feature) array with contiguous features.
struct HeadArray {
  void* data;
  std::int64_t batch_stride, token_stride, head_stride;
};

struct Arguments {
  std::int64_t q_heads, kv_heads, group;
  int head_dim, v_head_dim;
  HeadArray q, k, v, out;

  void* lse;  // (batch, head, query), in the type of arithmetic
  std::int64_t lse_batch_stride, lse_head_stride, lse_query_stride;

  double scale, softcap;
  std::int64_t window;
  bool causal;

  // Each null if absent; the extent 1 of a broadcast has stride 0.
  const void* bias;
  std::int64_t bias_batch_stride, bias_head_stride, bias_query_stride;
  const void* alibi_slopes;
  const void* sinks;
  const std::int32_t* block_mask;
  std::int64_t block_batch_stride, block_head_stride, block_row_stride, block_q, block_kv;
  const AttentionCalls* functor;
};

/// What backward has besides. Sums are in the type of arithmetic and have the strides of `HeadArray`.
struct GradientArguments {
  HeadArray dout, dq_sum, dk_sum, dv_sum;
  void* delta;  // (batch, head, query), dense
  std::int64_t delta_head_stride;
};

/// Which queries meet which keys: all of a batch, or one of the sequences packed in it.
struct Sequence {
  std::int64_t batch, q_begin, q_len, kv_begin, kv_len;
};

/// Queries of all heads that share a key head, numbered `query · group + head`: queries of one position lie
/// together, so that they see the same keys.
struct RowRange {
  std::int64_t kv_head, begin;
  int count;
};

/// Partial results of few rows: (batch, head, query, part, v_head_dim + 2), dense.
struct Parts {
  void* data;
  std::int64_t q_len, count;  ///< queries of all sequences, most parts of a sequence
};

/// The kernels of one instruction set and storage type.
struct AttentionKernels {
  int panel_rows;                         ///< rows in the lanes of one panel
  int (*forward_rows)(const Arguments&);  ///< most rows per call of `forward`
  std::size_t (*forward_scratch)(const Arguments&);
  void (*forward)(const Arguments&, const Sequence&, const RowRange&, void* scratch);

  int decode_rows, decode_part;  ///< most rows per key head, and keys, of a call of `decode`
  std::size_t (*decode_scratch)(const Arguments&, int rows);  ///< of a key head
  void (*decode)(const Arguments&, const Parts&, const Sequence&, std::int64_t part, void* scratch);
  void (*combine)(const Arguments&, const Parts&, const Sequence&, const RowRange&, void* scratch);

  int backward_rows, backward_keys;  ///< calls of `backward` have multiples of these
  void (*delta)(const Arguments&, const GradientArguments&, const Sequence&, const RowRange&, void* scratch);
  std::size_t (*backward_scratch)(const Arguments&);
  void (*backward)(const Arguments&, const GradientArguments&, const Sequence&, const RowRange&,
                   std::int64_t first_key, std::int64_t keys, void* scratch);
};

template <Isa isa>
const AttentionKernels& attention_kernels(DType storage);

}  // namespace kformer::Impl::host
