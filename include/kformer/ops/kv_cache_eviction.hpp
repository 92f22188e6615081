// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"
#include "kformer/ops/attention_options.hpp"

/// \file
/// Functions of caches that drop tokens: how much attention a key received, which keys to keep (H2O, Zhang et
/// al., arXiv:2306.14048, section 4), and a mask for keys that are not contiguous.

namespace kformer {

/// Which of the keys before it a query at position `p` sees, by the position `j` of the key.
struct KvMaskOptions {
  std::int64_t window = 0;        ///< hide keys with `p − j ≥ window`; 0 means no window
  std::int64_t sinks = 0;         ///< except those with `j < sinks`
  std::int64_t model_window = 0;  ///< hide every key with `p − j ≥ model_window`; 0 means no window
};

namespace Impl {

struct KvAttentionMass {
  static constexpr const char* op = "kv_cache";
  static constexpr const char* function = "kv_attention_mass";
  TensorRef q, k, lse, positions, mass;
  AttentionOptions options;
  Operands operands() const;
  void check() const;
};

struct KvHeavyHitters {
  static constexpr const char* op = "kv_cache";
  static constexpr const char* function = "kv_heavy_hitters";
  TensorRef mass, kept;
  std::int64_t recent;
  Operands operands() const;
  void check() const;
};

struct KvMask {
  static constexpr const char* op = "kv_cache";
  static constexpr const char* function = "kv_mask";
  TensorRef positions, bias;
  KvMaskOptions options;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// The attention that keys receive, summed over queries and over the query heads of a group: `Σ exp(s − lse)`
/// with the scores `s` of `attention_forward`, causal with the queries at the last keys. It is added for keys
/// that precede the queries; for the last `q_len` keys, which have no history, it replaces the previous value.
///
/// \param exec      the instance everything is launched on; nothing is fenced or allocated
/// \param q         (q_len, q_heads, head_dim), T
/// \param k         (kv_len, kv_heads, head_dim), T, kv_len ≥ q_len
/// \param lse       (q_heads, q_len), compute_t<T>, of `attention_forward`
/// \param positions (kv_heads, kv_len), int32: position of each key in the text; distances of
///                  `options.window` are between these
/// \param mass      (kv_heads, kv_len), compute_t<T>, accumulated
/// \param options   scale, window, softcap; always causal
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if window or softcap is negative, or compute_t<T> does not hold scale or softcap
template <ExecutionSpace Exec, AnyView Q, AnyView K, AnyView L, AnyView P, AnyView M>
void kv_attention_mass(const Exec& exec, const Q& q, const K& k, const L& lse, const P& positions,
                       const M& mass, const AttentionOptions& options = {}) {
  using T = Impl::scalar_t<Q>;
  const Impl::KvAttentionMass problem{Impl::input<Exec, T, 3>(q),
                                      Impl::input<Exec, T, 3>(k),
                                      Impl::input<Exec, compute_t<T>, 2>(lse),
                                      Impl::input<Exec, std::int32_t, 2>(positions),
                                      Impl::output<Exec, compute_t<T>, 2>(mass),
                                      options};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView Q, AnyView K, AnyView L, AnyView P, AnyView M>
void kv_attention_mass(const Q& q, const K& k, const L& lse, const P& positions, const M& mass,
                       const AttentionOptions& options = {}) {
  kv_attention_mass(Kokkos::DefaultExecutionSpace(), q, k, lse, positions, mass, options);
}

/// Chooses the tokens to keep: the last `recent`, and of the earlier tokens those with the largest mass, of
/// equal ones the earlier. NaN counts as the largest, −0 as 0.
///
/// \param exec   the instance
/// \param mass   (arrays, heads, tokens), float or double, not negative
/// \param kept   (arrays, heads, count), int32, overwritten: growing indices of tokens, recent ≤ count ≤
///               tokens
/// \param recent how many of the last tokens are always kept
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if recent is negative or more than count
template <ExecutionSpace Exec, AnyView M, AnyView K>
void kv_heavy_hitters(const Exec& exec, const M& mass, const K& kept, std::int64_t recent) {
  using T = Impl::scalar_t<M>;
  const Impl::KvHeavyHitters problem{Impl::input<Exec, T, 3>(mass), Impl::output<Exec, std::int32_t, 3>(kept),
                                     recent};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView M, AnyView K>
void kv_heavy_hitters(const M& mass, const K& kept, std::int64_t recent) {
  kv_heavy_hitters(Kokkos::DefaultExecutionSpace(), mass, kept, recent);
}

/// A bias for `attention_forward` that hides keys by their position: 0 or −∞. The queries have the
/// positions of the last keys.
///
/// \param exec      the instance
/// \param positions (kv_heads or 1, kv_len), int32
/// \param bias      (heads, q_len, kv_len), T, overwritten; heads is a multiple of the first extent of
///                  positions, q_len ≤ kv_len
/// \param options   windows and sinks
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if an option is negative
template <ExecutionSpace Exec, AnyView P, AnyView B>
void kv_mask(const Exec& exec, const P& positions, const B& bias, const KvMaskOptions& options = {}) {
  using T = Impl::scalar_t<B>;
  const Impl::KvMask problem{Impl::input<Exec, std::int32_t, 2>(positions), Impl::output<Exec, T, 3>(bias),
                             options};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView P, AnyView B>
void kv_mask(const P& positions, const B& bias, const KvMaskOptions& options = {}) {
  kv_mask(Kokkos::DefaultExecutionSpace(), positions, bias, options);
}

}  // namespace kformer
