// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/kv_cache_int8.hpp"
#include "ops/kv_cache/rows.hpp"

/// \file
/// The portable kernels of caches in 8 bits.

namespace kformer::Impl {

template <class C>
KOKKOS_INLINE_FUNCTION bool is_finite(C x) {
  return Kokkos::abs(x) <= Kokkos::Experimental::finite_max_v<C>;
}

/// The scale of a head whose largest magnitude is `most`; NaN if the head is not finite.
template <class C>
KOKKOS_INLINE_FUNCTION C int8_scale(C most) {
  return is_finite(most) ? most / C(127) : Kokkos::Experimental::quiet_NaN_v<C>;
}

/// The code of `x`; 128 means 0.
template <class C>
KOKKOS_INLINE_FUNCTION std::uint8_t int8_code(C x, C scale) {
  if (!(scale > C(0))) return 128;
  const C code = Kokkos::round(x / scale);
  // Below the smallest normal number a scale is so coarse that a quotient may be larger.
  return static_cast<std::uint8_t>(128 + static_cast<int>(Kokkos::fmin(C(127), Kokkos::fmax(C(-127), code))));
}

/// NaN if any of `count` neighbours is.
template <class C, class T>
KOKKOS_INLINE_FUNCTION C largest_magnitude(const OneThread&, const T* x, std::int64_t count) {
  C most = 0;
  for (std::int64_t d = 0; d < count; ++d) {
    const C size = Kokkos::abs(static_cast<C>(x[d]));
    most = size <= most ? most : size;
    if (size != size) return size;
  }
  return most;
}
template <class C, class Member, class T>
KOKKOS_INLINE_FUNCTION C largest_magnitude(const Member& team, const T* x, std::int64_t count) {
  C most = 0;
  Kokkos::parallel_reduce(
      Kokkos::TeamVectorRange(team, count),
      [&](std::int64_t d, C& here) {
        const C size = Kokkos::abs(static_cast<C>(x[d]));
        // A maximum drops NaN, so infinity represents it.
        here = Kokkos::fmax(here, size == size ? size : Kokkos::Experimental::infinity_v<C>);
      },
      Kokkos::Max<C>(most));
  return most < C(0) ? C(0) : most;  // of no elements it is the lowest number
}

template <class T>
struct KvCodesOf {
  Strided<std::uint8_t, 3> codes;
  Strided<compute_t<T>, 2> scale;
  explicit KvCodesOf(const KvCodes& p)
      : codes(p.codes.as<std::uint8_t, 3>()), scale(p.scale.as<compute_t<T>, 2>()) {}
};

/// Items are the heads of the rows of k and of v in turn.
template <class T>
struct KvAppendCodes {
  using C = compute_t<T>;
  Strided<const T, 3> x[2];
  Strided<const std::int32_t, 1> slots;
  KvCodesOf<T> cache[2];

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const int which = static_cast<int>(item % 2);
    const Strided<const T, 3>& from = x[which];
    const std::int64_t row = item / 2 / from.extent[1], head = item / 2 % from.extent[1], slot = slots(row);
    const Strided<std::uint8_t, 3>& codes = cache[which].codes;
    if (slot < 0 || slot >= codes.extent[0]) return;
    const T* here = from.data + row * from.stride[0] + head * from.stride[1];
    std::uint8_t* to = codes.data + slot * codes.stride[0] + head * codes.stride[1];
    const C scale = int8_scale(largest_magnitude<C>(team, here, from.extent[2]));
    for_each_of(team, from.extent[2],
                [=](std::int64_t d) { to[d] = int8_code(static_cast<C>(here[d]), scale); });
    // Every thread of a team writes the same number.
    cache[which].scale(slot, head) = scale;
  }
};

template <class Exec>
void kv_append_int8_kokkos(const Exec& exec, const KvAppendInt8& p) {
  dispatch_dtype(p.k.dtype, [&]<class T>(std::type_identity<T>) {
    for_each_item("kformer::kv_append_int8[kokkos]", exec, 2 * p.k.extent[0] * p.k.extent[1], p.k.extent[2],
                  KvAppendCodes<T>{{p.k.template as<const T, 3>(), p.v.template as<const T, 3>()},
                                   p.slots.template as<const std::int32_t, 1>(),
                                   {KvCodesOf<T>(p.k_cache), KvCodesOf<T>(p.v_cache)}});
  });
}

template <class T>
struct KvGatherCodes {
  using C = compute_t<T>;
  KvCodesOf<T> cache[2];
  Strided<T, 3> x[2];

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const int which = static_cast<int>(item % 2);
    const Strided<T, 3>& out = x[which];
    const Strided<std::uint8_t, 3>& codes = cache[which].codes;
    const std::int64_t token = item / 2 / out.extent[1], head = item / 2 % out.extent[1];
    const std::uint8_t* from = codes.data + token * codes.stride[0] + head * codes.stride[1];
    T* to = out.data + token * out.stride[0] + head * out.stride[1];
    const C scale = cache[which].scale(token, head);
    for_each_of(team, out.extent[2],
                [=](std::int64_t d) { to[d] = T(static_cast<C>(static_cast<int>(from[d]) - 128) * scale); });
  }
};

template <class Exec>
void kv_gather_int8_kokkos(const Exec& exec, const KvGatherInt8& p) {
  dispatch_dtype(p.k.dtype, [&]<class T>(std::type_identity<T>) {
    for_each_item("kformer::kv_gather_int8[kokkos]", exec, 2 * p.k.extent[0] * p.k.extent[1], p.k.extent[2],
                  KvGatherCodes<T>{{KvCodesOf<T>(p.k_cache), KvCodesOf<T>(p.v_cache)},
                                   {p.k.template as<T, 3>(), p.v.template as<T, 3>()}});
  });
}

}  // namespace kformer::Impl
