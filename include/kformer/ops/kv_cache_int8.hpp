// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// 8-bit keys and values, with a scale per token and head (as KIVI, arXiv:2402.02750, quantises values per
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

/// The operands of `kv_append_int8`.
template <AnyView K, AnyView V, AnyView S, AnyView KC, AnyView KS, AnyView VC, AnyView VS>
struct KvAppendInt8Operands {
  K k;         ///< (rows, kv_heads, head_dim), T
  V v;         ///< (rows, kv_heads, v_head_dim), T
  S slots;     ///< (rows), int32; a row whose slot is outside the cache is not kept
  KC k_codes;  ///< (cache slots, kv_heads, head_dim), uint8; other slots are not touched
  KS k_scale;  ///< (cache slots, kv_heads), compute_t<T>; likewise
  VC v_codes;  ///< (cache slots, kv_heads, v_head_dim), uint8; likewise
  VS v_scale;  ///< (cache slots, kv_heads), compute_t<T>; likewise
};

/// `kv_append` into an 8-bit cache: for every row and head `scale = max|x| / 127`, `code = 128 + round(x /
/// scale)`, halves away from 0, in compute_t<T>. Then `|x − scale·(code − 128)| ≤ (1/2 + 127·ε) ·
/// scale` with the spacing ε of compute_t<T> at 1. A head of zeros has scale 0; one that is not finite has
/// scale NaN.
///
/// \param exec     the instance everything is launched on; nothing is fenced or allocated
/// \param operands the Views, as `KvAppendInt8Operands` names them
/// \throws DimensionMismatch if extents, strides or storage types do not match
/// \throws NotSupported if the cache has more than 2³¹ − 1 slots
template <ExecutionSpace Exec, class... V>
void kv_append_int8(const Exec& exec, const KvAppendInt8Operands<V...>& operands) {
  using T = Impl::scalar_t<decltype(operands.k)>;
  const Impl::KvAppendInt8 problem{Impl::input<Exec, T, 3>(operands.k),
                                   Impl::input<Exec, T, 3>(operands.v),
                                   Impl::input<Exec, std::int32_t, 1>(operands.slots),
                                   {Impl::output<Exec, std::uint8_t, 3>(operands.k_codes),
                                    Impl::output<Exec, compute_t<T>, 2>(operands.k_scale)},
                                   {Impl::output<Exec, std::uint8_t, 3>(operands.v_codes),
                                    Impl::output<Exec, compute_t<T>, 2>(operands.v_scale)}};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <class... V>
void kv_append_int8(const KvAppendInt8Operands<V...>& operands) {
  kv_append_int8(Kokkos::DefaultExecutionSpace(), operands);
}

/// The operands of `kv_gather_int8`.
template <AnyView KC, AnyView KS, AnyView VC, AnyView VS, AnyView K, AnyView V>
struct KvGatherInt8Operands {
  KC k_codes;  ///< (tokens, kv_heads, head_dim), uint8
  KS k_scale;  ///< (tokens, kv_heads), compute_t<T>
  VC v_codes;  ///< (tokens, kv_heads, v_head_dim), uint8
  VS v_scale;  ///< (tokens, kv_heads), compute_t<T>
  K k;         ///< (tokens, kv_heads, head_dim), T, overwritten
  V v;         ///< (tokens, kv_heads, v_head_dim), T, overwritten
};

/// The values that `kv_append_int8` stored: `scale·(code − 128)`, rounded to T.
///
/// \param exec     the instance
/// \param operands the Views, as `KvGatherInt8Operands` names them
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, class... V>
void kv_gather_int8(const Exec& exec, const KvGatherInt8Operands<V...>& operands) {
  using T = Impl::scalar_t<decltype(operands.k)>;
  const Impl::KvGatherInt8 problem{{Impl::input<Exec, std::uint8_t, 3>(operands.k_codes),
                                    Impl::input<Exec, compute_t<T>, 2>(operands.k_scale)},
                                   {Impl::input<Exec, std::uint8_t, 3>(operands.v_codes),
                                    Impl::input<Exec, compute_t<T>, 2>(operands.v_scale)},
                                   Impl::output<Exec, T, 3>(operands.k),
                                   Impl::output<Exec, T, 3>(operands.v)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <class... V>
void kv_gather_int8(const KvGatherInt8Operands<V...>& operands) {
  kv_gather_int8(Kokkos::DefaultExecutionSpace(), operands);
}

}  // namespace kformer
