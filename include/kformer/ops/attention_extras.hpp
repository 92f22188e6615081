// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/arguments.hpp"

/// \file
/// Optional operands of flash attention besides q, k and v: terms of the scores, offsets of packed sequences,
/// and the blocks of pairs that exist.

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

/// Optional operands of `attention_forward` and `attention_backward`. A scaled and soft-capped score `s` of
/// query `i` (at position `p = i + kv_len − q_len`) and key `j` becomes `s − slope·|p − j| + bias`, and a sink
/// adds `exp(sink)` to the sum that softmax divides by.
///
/// Extras refer to the memory of their Views and do not keep it alive: the Views must outlive the work that is
/// launched.
///
/// `AttentionExtras<Exec>().bias(b).sinks(s)`
template <class Exec>
class AttentionExtras {
 public:
  /// None.
  AttentionExtras() = default;
  /// Refused at compile time: a View in the place of these operands.
  template <AnyView V>
  AttentionExtras(const V&) {
    static_assert(!AnyView<V>,
                  "kformer: a View is not AttentionExtras; extras come before the workspace, so pass {} for "
                  "none, or AttentionExtras<Exec>() with the View as bias, sinks, ...");
  }

  /// Adds to the scores; −∞ hides a key. (batch or 1, q_heads or 1, q_len or 1, kv_len), T; an extent of 1
  /// broadcasts. It gets a gradient if `AttentionExtraGradients::bias` names one.
  template <AnyView V>
  AttentionExtras& bias(const V& view) {
    m_refs.bias = Impl::input<Exec, Impl::scalar_t<V>, 4>(view);
    return *this;
  }
  /// Attention with linear biases (Press et al., arXiv:2108.12409): subtracts `slope·|p − j|`. (q_heads),
  /// compute_t<T>. The slopes are constants.
  template <AnyView V>
  AttentionExtras& alibi_slopes(const V& view) {
    m_refs.alibi_slopes = Impl::input<Exec, Impl::scalar_t<V>, 1>(view);
    return *this;
  }
  /// Attention sinks as of GPT-OSS (arXiv:2508.10925): a score per head that takes part in the softmax and has
  /// no value. (q_heads), T. lse then includes the sink: a query that sees no key has out = 0 and lse = sink.
  template <AnyView V>
  AttentionExtras& sinks(const V& view) {
    m_refs.sinks = Impl::input<Exec, Impl::scalar_t<V>, 1>(view);
    return *this;
  }
  /// Consecutively packed sequences of different lengths: the batch is 1, and sequence `n` owns queries
  /// `cu_seqlens_q[n] ≤ i < cu_seqlens_q[n + 1]` and the keys that `cu_seqlens_kv` gives. Both (sequences + 1),
  /// int32, starting at 0, never decreasing, ending at q_len and kv_len. Cannot be combined with a bias or a
  /// block mask.
  template <AnyView Q, AnyView KV>
  AttentionExtras& sequences(const Q& cu_seqlens_q, const KV& cu_seqlens_kv) {
    m_refs.cu_seqlens_q = Impl::input<Exec, std::int32_t, 1>(cu_seqlens_q);
    m_refs.cu_seqlens_kv = Impl::input<Exec, std::int32_t, 1>(cu_seqlens_kv);
    return *this;
  }
  /// Block-sparse attention: pairs of a block whose entry is 0 do not see each other, and cost nothing where
  /// the blocks are not smaller than a kernel's tiles. (batch or 1, q_heads or 1, ⌈q_len/block_q⌉,
  /// ⌈kv_len/block_kv⌉), int32.
  template <AnyView V>
  AttentionExtras& block_mask(const V& view, std::int64_t block_q, std::int64_t block_kv) {
    m_refs.block_q = block_q;
    m_refs.block_kv = block_kv;
    m_refs.block_mask = Impl::input<Exec, std::int32_t, 4>(view);
    return *this;
  }

  /// The type-erased operands.
  const Impl::AttentionExtraRefs& refs() const { return m_refs; }

 private:
  Impl::AttentionExtraRefs m_refs;
};

/// Outputs of `attention_backward` for the gradients of the optional operands; none by default.
template <class Exec>
class AttentionExtraGradients {
 public:
  /// None.
  AttentionExtraGradients() = default;
  /// Refused at compile time: a View in the place of these operands.
  template <AnyView V>
  AttentionExtraGradients(const V&) {
    static_assert(!AnyView<V>,
                  "kformer: a View is not AttentionExtraGradients; they come before the workspace, so pass {} "
                  "for none, or AttentionExtraGradients<Exec>() with the View as bias or sinks");
  }

  /// `dbias = Σ dS` over the broadcast extents of the bias. Like bias, T, overwritten. Costs a separate pass.
  template <AnyView V>
  AttentionExtraGradients& bias(const V& view) {
    m_refs.dbias = Impl::output<Exec, Impl::scalar_t<V>, 4>(view);
    return *this;
  }
  /// `dsink = −Σ exp(sink − lse)·δ`. (q_heads), compute_t<T>, accumulated (`+=`): sinks are parameters.
  template <AnyView V>
  AttentionExtraGradients& sinks(const V& view) {
    m_refs.dsinks = Impl::output<Exec, Impl::scalar_t<V>, 1>(view);
    return *this;
  }

  /// The type-erased operands.
  const Impl::AttentionExtraGradientRefs& refs() const { return m_refs; }

 private:
  Impl::AttentionExtraGradientRefs m_refs;
};

}  // namespace kformer
