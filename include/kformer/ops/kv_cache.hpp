// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// Writes keys and values into a cache, gathers them from pages (Kwon et al., arXiv:2309.06180, section 4), and
/// compacts them. A cache is an array of slots, one token each; slots are numbered in int32.

namespace kformer {

namespace Impl {

struct KvAppend {
  static constexpr const char* op = "kv_cache";
  static constexpr const char* function = "kv_append";
  TensorRef k, v, slots, k_cache, v_cache;
  Operands operands() const;
  void check() const;
};

struct KvGather {
  static constexpr const char* op = "kv_cache";
  static constexpr const char* function = "kv_gather";
  TensorRef k_cache, v_cache, pages, k, v;
  std::int64_t page_tokens;
  Operands operands() const;
  void check() const;
};

struct KvCopy {
  static constexpr const char* op = "kv_cache";
  static constexpr const char* function = "kv_copy";
  TensorRef from, to;
  Operands operands() const;
  void check() const;
};

struct KvCompact {
  static constexpr const char* op = "kv_cache";
  static constexpr const char* function = "kv_compact";
  TensorRef cache, kept;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// `k_cache[slots[r]] = k[r]`, `v_cache[slots[r]] = v[r]` for every row. A row whose slot is outside the
/// cache is not kept. Slots of different rows must differ.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param k       (rows, kv_heads, head_dim), T
/// \param v       (rows, kv_heads, v_head_dim), T
/// \param slots   (rows), int32
/// \param k_cache (cache slots, kv_heads, head_dim), T; other slots are not touched
/// \param v_cache (cache slots, kv_heads, v_head_dim), T; likewise
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if the cache has more than 2³¹ − 1 slots
template <ExecutionSpace Exec, AnyView K, AnyView V, AnyView S, AnyView KC, AnyView VC>
void kv_append(const Exec& exec, const K& k, const V& v, const S& slots, const KC& k_cache, const VC& v_cache) {
  using T = Impl::scalar_t<K>;
  const Impl::KvAppend problem{Impl::input<Exec, T, 3>(k), Impl::input<Exec, T, 3>(v),
                               Impl::input<Exec, std::int32_t, 1>(slots), Impl::output<Exec, T, 3>(k_cache),
                               Impl::output<Exec, T, 3>(v_cache)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView K, AnyView V, AnyView S, AnyView KC, AnyView VC>
void kv_append(const K& k, const V& v, const S& slots, const KC& k_cache, const VC& v_cache) {
  kv_append(Kokkos::DefaultExecutionSpace(), k, v, slots, k_cache, v_cache);
}

/// Gathers the tokens of a sequence from its pages: `k[t] = k_cache[s]`, `v[t] = v_cache[s]` with `s =
/// pages[t / page_tokens] · page_tokens + t mod page_tokens`. A token whose page is outside the cache becomes
/// NaN.
///
/// \param exec        the instance
/// \param k_cache     (pages in total · page_tokens, kv_heads, head_dim), T
/// \param v_cache     (pages in total · page_tokens, kv_heads, v_head_dim), T
/// \param pages       (at least ⌈tokens / page_tokens⌉), int32
/// \param k           (tokens, kv_heads, head_dim), T, overwritten
/// \param v           (tokens, kv_heads, v_head_dim), T, overwritten
/// \param page_tokens tokens per page
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if page_tokens is not positive, or the cache has more than 2³¹ − 1 slots
template <ExecutionSpace Exec, AnyView KC, AnyView VC, AnyView P, AnyView K, AnyView V>
void kv_gather(const Exec& exec, const KC& k_cache, const VC& v_cache, const P& pages, const K& k, const V& v,
               std::int64_t page_tokens) {
  using T = Impl::scalar_t<KC>;
  const Impl::KvGather problem{Impl::input<Exec, T, 3>(k_cache),
                               Impl::input<Exec, T, 3>(v_cache),
                               Impl::input<Exec, std::int32_t, 1>(pages),
                               Impl::output<Exec, T, 3>(k),
                               Impl::output<Exec, T, 3>(v),
                               page_tokens};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView KC, AnyView VC, AnyView P, AnyView K, AnyView V>
void kv_gather(const KC& k_cache, const VC& v_cache, const P& pages, const K& k, const V& v,
               std::int64_t page_tokens) {
  kv_gather(Kokkos::DefaultExecutionSpace(), k_cache, v_cache, pages, k, v, page_tokens);
}

/// `to = from`, for slots of several arrays at once. Any storage type; rows of `from` may be broadcast, with
/// stride 0.
///
/// \param exec the instance
/// \param from (arrays, slots, heads, features), any type
/// \param to   the same extents and type, overwritten; not a part of `from`
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, AnyView From, AnyView To>
void kv_copy(const Exec& exec, const From& from, const To& to) {
  using T = typename From::non_const_value_type;
  const Impl::KvCopy problem{Impl::input<Exec, T, 4>(from), Impl::output<Exec, T, 4>(to)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView From, AnyView To>
void kv_copy(const From& from, const To& to) {
  kv_copy(Kokkos::DefaultExecutionSpace(), from, to);
}

/// Closes gaps in place: slot `n` of each array and head becomes what was in slot `kept[n]`, which must grow
/// with `n`. Slots from `count` on are not touched; neither is a slot whose `kept` is outside
/// the cache.
///
/// \param exec  the instance
/// \param cache (arrays, slots, heads, features), any type, changed in place
/// \param kept  (arrays or 1, heads or 1, count), int32, count ≤ slots; an extent of 1 broadcasts
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, AnyView C, AnyView K>
void kv_compact(const Exec& exec, const C& cache, const K& kept) {
  using T = typename C::non_const_value_type;
  const Impl::KvCompact problem{Impl::output<Exec, T, 4>(cache), Impl::input<Exec, std::int32_t, 3>(kept)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView C, AnyView K>
void kv_compact(const C& cache, const K& kept) {
  kv_compact(Kokkos::DefaultExecutionSpace(), cache, kept);
}

}  // namespace kformer
