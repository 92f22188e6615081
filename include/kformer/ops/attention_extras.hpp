// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/tensor_ref.hpp"

/// \file
/// What flash attention takes besides q, k and v: terms of the scores, where packed sequences begin, and which
/// blocks of pairs exist.

namespace kformer {

namespace Impl {

/// Each may be absent.
struct AttentionExtraRefs {
  TensorRef bias, alibi_slopes, sinks, cu_seqlens_q, cu_seqlens_kv, block_mask;
  std::int64_t block_q = 0, block_kv = 0;
};

/// Each may be absent.
struct AttentionExtraGradientRefs {
  TensorRef dbias, dsinks;
};

}  // namespace Impl

/// Optional operands of `attention_forward` and `attention_backward`; like Views, copies refer to the same
/// memory. A scaled and soft-capped score `s` of query `i` (at position `p = i + kv_len − q_len`) and key `j`
/// becomes `s − slope·|p − j| + bias`, and a sink adds `exp(sink)` to the sum that softmax divides by.
///
/// `AttentionExtras<Exec>().bias(b).sinks(s)`
template <class Exec>
class AttentionExtras {
 public:
  /// Adds to the scores; −∞ hides a key. (batch or 1, q_heads or 1, q_len or 1, kv_len), T; an extent of 1
  /// stands for all. It gets a gradient if `AttentionExtraGradients::bias` names one.
  template <ViewOf<4> V>
  AttentionExtras& bias(const V& view) {
    return set(m_refs.bias, view);
  }
  /// Attention with linear biases (Press et al., arXiv:2108.12409): subtracts `slope·|p − j|`. (q_heads),
  /// compute_t<T>. The slopes are constants.
  template <ViewOf<1> V>
  AttentionExtras& alibi_slopes(const V& view) {
    return set(m_refs.alibi_slopes, view);
  }
  /// Attention sinks as of GPT-OSS (arXiv:2508.10925): a score per head that takes part in the softmax and has
  /// no value. (q_heads), T. lse then includes the sink: a query that sees no key has out = 0 and lse = sink.
  template <ViewOf<1> V>
  AttentionExtras& sinks(const V& view) {
    return set(m_refs.sinks, view);
  }
  /// Sequences of different lengths packed one after the other: the batch is 1, and sequence `n` owns queries
  /// `cu_seqlens_q[n] ≤ i < cu_seqlens_q[n + 1]` and the keys that `cu_seqlens_kv` says. Both (sequences + 1),
  /// int32, starting at 0, never decreasing, ending at q_len and kv_len. Not together with a bias or a block
  /// mask.
  template <ViewOf<1> Q, ViewOf<1> KV>
  AttentionExtras& sequences(const Q& cu_seqlens_q, const KV& cu_seqlens_kv) {
    set(m_refs.cu_seqlens_q, cu_seqlens_q);
    return set(m_refs.cu_seqlens_kv, cu_seqlens_kv);
  }
  /// Block-sparse attention: pairs of a block whose entry is 0 do not see each other, and cost nothing where
  /// the blocks are not smaller than a kernel's tiles. (batch or 1, q_heads or 1, ⌈q_len/block_q⌉,
  /// ⌈kv_len/block_kv⌉), int32.
  template <ViewOf<4> V>
  AttentionExtras& block_mask(const V& view, std::int64_t block_q, std::int64_t block_kv) {
    m_refs.block_q = block_q;
    m_refs.block_kv = block_kv;
    return set(m_refs.block_mask, view);
  }

  /// The operands without their types.
  const Impl::AttentionExtraRefs& refs() const { return m_refs; }

 private:
  template <class V>
  AttentionExtras& set(TensorRef& ref, const V& view) {
    static_assert(Impl::all_accessible<Exec, V>, "kformer: Views must be accessible from the execution space");
    ref = erase(view);
    return *this;
  }

  Impl::AttentionExtraRefs m_refs;
};

/// Where `attention_backward` puts the gradients of the optional operands; none unless asked for.
template <class Exec>
class AttentionExtraGradients {
 public:
  /// `dbias = Σ dS` over what the bias stands for. Like bias, T, overwritten. Costs a pass of its own.
  template <ViewOf<4> V>
  AttentionExtraGradients& bias(const V& view) {
    return set(m_refs.dbias, view);
  }
  /// `dsink = −Σ exp(sink − lse)·δ`. (q_heads), compute_t<T>, accumulated (`+=`): sinks are parameters.
  template <ViewOf<1> V>
  AttentionExtraGradients& sinks(const V& view) {
    return set(m_refs.dsinks, view);
  }

  /// The operands without their types.
  const Impl::AttentionExtraGradientRefs& refs() const { return m_refs; }

 private:
  template <class V>
  AttentionExtraGradients& set(TensorRef& ref, const V& view) {
    static_assert(Impl::all_accessible<Exec, V>, "kformer: Views must be accessible from the execution space");
    ref = erase(view);
    return *this;
  }

  Impl::AttentionExtraGradientRefs m_refs;
};

}  // namespace kformer
