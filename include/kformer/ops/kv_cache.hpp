// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// How keys and values get into a cache, out of pages (Kwon et al., arXiv:2309.06180, section 4), and closer
/// together. A cache is an array of slots, one token each; slots are numbered in int32.

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

/// `k_cache[slots[r]] = k[r]`, `v_cache[slots[r]] = v[r]` for every row. A row whose slot lies outside the
/// cache is not kept. Slots of different rows must differ.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param k       (rows, kv_heads, head_dim), T
/// \param v       (rows, kv_heads, v_head_dim), T
/// \param slots   (rows), int32
/// \param k_cache (cache slots, kv_heads, head_dim), T; other slots are not touched
/// \param v_cache (cache slots, kv_heads, v_head_dim), T; likewise
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<3> K, ViewOf<3> V, ViewOf<1> S, ViewOf<3> KC, ViewOf<3> VC>
void kv_append(const Exec& exec, const K& k, const V& v, const S& slots, const KC& k_cache, const VC& v_cache) {
  static_assert(Impl::all_accessible<Exec, K, V, S, KC, VC>,
                "kformer: Views must be accessible from the execution space");
  const Impl::KvAppend problem{erase(k), erase(v), erase(slots), erase(k_cache), erase(v_cache)};
  problem.check();
  Impl::run_best(exec, problem);
}

/// The tokens of a sequence out of its pages: `k[t] = k_cache[s]`, `v[t] = v_cache[s]` with `s =
/// pages[t / page_tokens] · page_tokens + t mod page_tokens`. A token whose page lies outside the cache becomes
/// NaN.
///
/// \param exec        the instance
/// \param k_cache     (pages in all · page_tokens, kv_heads, head_dim), T
/// \param v_cache     (pages in all · page_tokens, kv_heads, v_head_dim), T
/// \param pages       (at least ⌈tokens / page_tokens⌉), int32
/// \param page_tokens tokens of a page
/// \param k           (tokens, kv_heads, head_dim), T, overwritten
/// \param v           (tokens, kv_heads, v_head_dim), T, overwritten
/// \throws DimensionMismatch if extents, strides or storage types do not fit
/// \throws NotSupported if page_tokens is not positive
template <class Exec, ViewOf<3> KC, ViewOf<3> VC, ViewOf<1> P, ViewOf<3> K, ViewOf<3> V>
void kv_gather(const Exec& exec, const KC& k_cache, const VC& v_cache, const P& pages, std::int64_t page_tokens,
               const K& k, const V& v) {
  static_assert(Impl::all_accessible<Exec, KC, VC, P, K, V>,
                "kformer: Views must be accessible from the execution space");
  const Impl::KvGather problem{erase(k_cache), erase(v_cache), erase(pages), erase(k), erase(v), page_tokens};
  problem.check();
  Impl::run_best(exec, problem);
}

/// `to = from`, for slots of several arrays at once. Any storage type; rows of `from` may be broadcast, with
/// stride 0.
///
/// \param exec the instance
/// \param from (arrays, slots, heads, features), any type
/// \param to   the same extents and type, overwritten; not a part of `from`
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<4> F, ViewOf<4> T>
void kv_copy(const Exec& exec, const F& from, const T& to) {
  static_assert(Impl::all_accessible<Exec, F, T>, "kformer: Views must be accessible from the execution space");
  const Impl::KvCopy problem{erase(from), erase(to)};
  problem.check();
  Impl::run_best(exec, problem);
}

/// Closes gaps in place: slot `n` of each array and head becomes what was in slot `kept[n]`, which must grow
/// with `n`. Slots from the number of kept ones on are not touched; neither is a slot whose `kept` lies outside
/// the cache.
///
/// \param exec  the instance
/// \param cache (arrays, slots, heads, features), any type, changed in place
/// \param kept  (arrays or 1, heads or 1, count), int32, count ≤ slots; an extent of 1 stands for all
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<4> C, ViewOf<3> K>
void kv_compact(const Exec& exec, const C& cache, const K& kept) {
  static_assert(Impl::all_accessible<Exec, C, K>, "kformer: Views must be accessible from the execution space");
  const Impl::KvCompact problem{erase(cache), erase(kept)};
  problem.check();
  Impl::run_best(exec, problem);
}

}  // namespace kformer
