// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "ops/common/cuda/launch.hpp"

/// \file
/// Attention as the CUDA kernels see it. Free of Kokkos.

namespace kformer::Impl::cuda {

/// `f.operator()<half>()`.
template <class F>
void with_half(Half type, F f) {
  if (type == Half::bf16)
    f.template operator()<Half::bf16>();
  else
    f.template operator()<Half::f16>();
}

/// A (batch, token, head, feature) array with contiguous features.
template <class Stored>
struct Heads {
  Stored* data;
  std::int64_t batch_stride;
  int token_stride, head_stride;

  KFORMER_DEVICE Stored* row(int batch, int token, int head) const {
    return data + batch * batch_stride + static_cast<std::int64_t>(token) * token_stride +
           static_cast<std::int64_t>(head) * head_stride;
  }
};

/// A (batch, head, query) array of floats.
struct HeadRows {
  float* data;
  std::int64_t batch_stride, head_stride, query_stride;

  KFORMER_DEVICE float& at(int batch, int head, int query) const {
    return data[batch * batch_stride + head * head_stride + query * query_stride];
  }
};

/// What does not depend on how numbers are stored.
struct AttentionRules {
  HeadRows lse;
  int q_heads, group;        ///< query heads, and how many of them share a key head
  int head_dim, v_head_dim;  ///< rows of them are multiples of 16 bytes
  float scale, softcap;
  int window;  ///< 0 for none
  bool causal;
};

template <class Stored>
struct AttentionArgumentsOf : AttentionRules {
  Heads<Stored> q, k, v, out;
};
using AttentionArguments = AttentionArgumentsOf<std::uint16_t>;

/// All batches alike, or the sequences packed in one: `q_starts` and `kv_starts` are read on the device.
struct Sequences {
  int count, q_len, kv_len;  ///< how many, and lengths: of all batches, or the sums of packed ones
  const std::int32_t *q_starts, *kv_starts;
};

/// The partial results of rows, (batch, query, head), by part of the keys: a (row, part, feature) array of
/// sums of values, then for each row and part a `RowPart`.
struct Partials {
  float* data;
  std::int64_t rows;
  int parts, features;

  std::int64_t bytes() const { return rows * parts * (features + 2) * std::int64_t(sizeof(float)); }
};

/// \throws std::runtime_error if CUDA refuses the launch
void attention_forward(Stream stream, Half type, const AttentionArguments& a, const Sequences& sequences);

/// The same of floats, whose products are sums of products in TF32.
void attention_forward_tf32x3(Stream stream, const AttentionArgumentsOf<float>& a, const Sequences& sequences);

/// Rows that decoding can give to a block: queries times heads of a group.
inline constexpr int decode_rows[] = {16, 64};
/// The same with keys in parts; `group` is at most `rows`, one of `decode_rows`.
void attention_decode(Stream stream, Half type, const AttentionArguments& a, const Sequences& sequences,
                      const Partials& partials, int rows);

}  // namespace kformer::Impl::cuda
