// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/kv_cache.hpp"
#include "ops/kv_cache/rows.hpp"

/// \file
/// The portable kernels that move rows of caches.

namespace kformer::Impl {

/// Item 2r is row r of k, item 2r + 1 that of v.
template <class U>
struct KvAppendRows {
  Strided<const U, 3> x[2];
  Strided<const std::int32_t, 1> slots;
  Strided<U, 3> cache[2];

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const int which = static_cast<int>(item % 2);
    const std::int64_t row = item / 2, slot = slots(row);
    const Strided<U, 3>& to = cache[which];
    if (slot < 0 || slot >= to.extent[0]) return;
    copy_heads(team, row_of(x[which], row), row_of(to, slot), to.extent[1], to.extent[2]);
  }
};

template <class Exec>
void kv_append_kokkos(const Exec& exec, const KvAppend& p) {
  dispatch_width(p.k.dtype, [&]<class U>(std::type_identity<U>) {
    for_each_item("kformer::kv_append[kokkos]", exec, 2 * p.k.extent[0], p.k.extent[1] * p.k.extent[2],
                  KvAppendRows<U>{{p.k.template as<const U, 3>(), p.v.template as<const U, 3>()},
                                  p.slots.template as<const std::int32_t, 1>(),
                                  {p.k_cache.template as<U, 3>(), p.v_cache.template as<U, 3>()}});
  });
}

/// Item 2t is token t of k, item 2t + 1 that of v.
template <class T>
struct KvGatherRows {
  Strided<const T, 3> cache[2];
  Strided<const std::int32_t, 1> pages;
  std::int64_t page_tokens;
  Strided<T, 3> x[2];

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const int which = static_cast<int>(item % 2);
    const std::int64_t token = item / 2, page = pages(token / page_tokens);
    const std::int64_t slot = page * page_tokens + token % page_tokens;
    const Strided<T, 3>& to = x[which];
    if (page >= 0 && slot < cache[which].extent[0]) {
      copy_heads(team, row_of(cache[which], slot), row_of(to, token), to.extent[1], to.extent[2]);
      return;
    }
    const HeadRow<T> row = row_of(to, token);
    const std::int64_t dim = to.extent[2];
    for_each_of(team, to.extent[1] * dim, [=](std::int64_t i) {
      row.data[i / dim * row.head_stride + i % dim] = T(Kokkos::Experimental::quiet_NaN_v<compute_t<T>>);
    });
  }
};

template <class Exec>
void kv_gather_kokkos(const Exec& exec, const KvGather& p) {
  dispatch_dtype(p.k.dtype, [&]<class T>(std::type_identity<T>) {
    for_each_item("kformer::kv_gather[kokkos]", exec, 2 * p.k.extent[0], p.k.extent[1] * p.k.extent[2],
                  KvGatherRows<T>{{p.k_cache.template as<const T, 3>(), p.v_cache.template as<const T, 3>()},
                                  p.pages.template as<const std::int32_t, 1>(),
                                  p.page_tokens,
                                  {p.k.template as<T, 3>(), p.v.template as<T, 3>()}});
  });
}

/// An item is a slot of an array.
template <class U>
struct KvCopyRows {
  Strided<const U, 4> from;
  Strided<U, 4> to;

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const std::int64_t array = item / to.extent[1], slot = item % to.extent[1];
    copy_heads(team,
               HeadRow<const U>{from.data + array * from.stride[0] + slot * from.stride[1], from.stride[2]},
               HeadRow<U>{to.data + array * to.stride[0] + slot * to.stride[1], to.stride[2]}, to.extent[2],
               to.extent[3]);
  }
};

template <class Exec>
void kv_copy_kokkos(const Exec& exec, const KvCopy& p) {
  dispatch_width(p.to.dtype, [&]<class U>(std::type_identity<U>) {
    for_each_item("kformer::kv_copy[kokkos]", exec, p.to.extent[0] * p.to.extent[1],
                  p.to.extent[2] * p.to.extent[3],
                  KvCopyRows<U>{p.from.template as<const U, 4>(), p.to.template as<U, 4>()});
  });
}

/// An item is a head of an array, or all heads of it where they keep the same slots. Its slots are moved in
/// order, and each thread meets the same features in every slot: no slot is overwritten before it is read.
template <class U>
struct KvCompactRows {
  Strided<U, 4> cache;
  Strided<const std::int32_t, 3> kept;
  std::int64_t heads_together;

  template <class Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t item) const {
    const std::int64_t groups = cache.extent[2] / heads_together;
    const std::int64_t array = item / groups, head = item % groups * heads_together;
    const std::int32_t* from = kept.data + (kept.extent[0] == 1 ? 0 : array * kept.stride[0]) +
                               (kept.extent[1] == 1 ? 0 : head * kept.stride[1]);
    U* heads = cache.data + array * cache.stride[0] + head * cache.stride[2];
    for (std::int64_t n = 0; n < kept.extent[2]; ++n) {
      const std::int64_t slot = from[n];
      if (slot == n || slot < 0 || slot >= cache.extent[1]) continue;
      copy_heads(team, HeadRow<const U>{heads + slot * cache.stride[1], cache.stride[2]},
                 HeadRow<U>{heads + n * cache.stride[1], cache.stride[2]}, heads_together, cache.extent[3]);
    }
  }
};

template <class Exec>
void kv_compact_kokkos(const Exec& exec, const KvCompact& p) {
  if (p.cache.size() == 0) return;
  const std::int64_t heads = p.cache.extent[2], together = p.kept.extent[1] == 1 ? heads : 1;
  dispatch_width(p.cache.dtype, [&]<class U>(std::type_identity<U>) {
    for_each_item(
        "kformer::kv_compact[kokkos]", exec, p.cache.extent[0] * heads / together, together * p.cache.extent[3],
        KvCompactRows<U>{p.cache.template as<U, 4>(), p.kept.template as<const std::int32_t, 3>(), together});
  });
}

}  // namespace kformer::Impl
