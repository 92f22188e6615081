// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// Keys and values in 8 bits, with a scale per token and head (as KIVI, arXiv:2402.02750, quantises values per
/// token; symmetric here).

namespace kformer {

namespace Impl {

/// Codes and scales of keys or values.
struct KvCodes {
  TensorRef codes, scale;
};

struct KvAppendInt8 {
  static constexpr const char* op = "kv_cache";
  static constexpr const char* function = "kv_append_int8";
  TensorRef k, v, slots;
  KvCodes k_cache, v_cache;
  Operands operands() const;
  void check() const;
};

struct KvGatherInt8 {
  static constexpr const char* op = "kv_cache";
  static constexpr const char* function = "kv_gather_int8";
  KvCodes k_cache, v_cache;
  TensorRef k, v;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// `kv_append` into a cache of 8 bits: for every row and head `scale = max|x| / 127`, `code = 128 + round(x /
/// scale)`, halves away from 0, in compute_t<T>. Then `|x − scale·(code − 128)| ≤ (1/2 + 127·ε) ·
/// scale` with the spacing ε of compute_t<T> at 1. A head of zeros has scale 0; one that is not finite has
/// scale NaN.
///
/// \param exec    the instance everything is launched on; nothing is fenced or allocated
/// \param k       (rows, kv_heads, head_dim), T
/// \param v       (rows, kv_heads, v_head_dim), T
/// \param slots   (rows), int32; a row whose slot lies outside the cache is not kept
/// \param k_codes (cache slots, kv_heads, head_dim), uint8; other slots are not touched
/// \param k_scale (cache slots, kv_heads), compute_t<T>
/// \param v_codes (cache slots, kv_heads, v_head_dim), uint8
/// \param v_scale (cache slots, kv_heads), compute_t<T>
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<3> K, ViewOf<3> V, ViewOf<1> S, ViewOf<3> KC, ViewOf<2> KS, ViewOf<3> VC,
          ViewOf<2> VS>
void kv_append_int8(const Exec& exec, const K& k, const V& v, const S& slots, const KC& k_codes,
                    const KS& k_scale, const VC& v_codes, const VS& v_scale) {
  static_assert(Impl::all_accessible<Exec, K, V, S, KC, KS, VC, VS>,
                "kformer: Views must be accessible from the execution space");
  const Impl::KvAppendInt8 problem{
      erase(k), erase(v), erase(slots), {erase(k_codes), erase(k_scale)}, {erase(v_codes), erase(v_scale)}};
  problem.check();
  Impl::run_best(exec, problem);
}

/// What `kv_append_int8` kept, as numbers: `scale·(code − 128)`, rounded to T.
///
/// \param exec    the instance
/// \param k_codes (tokens, kv_heads, head_dim), uint8
/// \param k_scale (tokens, kv_heads), compute_t<T>
/// \param v_codes (tokens, kv_heads, v_head_dim), uint8
/// \param v_scale (tokens, kv_heads), compute_t<T>
/// \param k       (tokens, kv_heads, head_dim), T, overwritten
/// \param v       (tokens, kv_heads, v_head_dim), T, overwritten
/// \throws DimensionMismatch if extents, strides or storage types do not fit
template <class Exec, ViewOf<3> KC, ViewOf<2> KS, ViewOf<3> VC, ViewOf<2> VS, ViewOf<3> K, ViewOf<3> V>
void kv_gather_int8(const Exec& exec, const KC& k_codes, const KS& k_scale, const VC& v_codes,
                    const VS& v_scale, const K& k, const V& v) {
  static_assert(Impl::all_accessible<Exec, KC, KS, VC, VS, K, V>,
                "kformer: Views must be accessible from the execution space");
  const Impl::KvGatherInt8 problem{
      {erase(k_codes), erase(k_scale)}, {erase(v_codes), erase(v_scale)}, erase(k), erase(v)};
  problem.check();
  Impl::run_best(exec, problem);
}

}  // namespace kformer
