// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/kv_cache/kokkos.hpp"
#include "ops/kv_cache/kokkos_eviction.hpp"
#include "ops/kv_cache/kokkos_int8.hpp"
#include "ops/kv_cache/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<KvAppend, Exec> : UsualList<KvAppend, Exec> {
  static void kokkos(const Exec& exec, const KvAppend& p, const Workspace&) { kv_append_kokkos(exec, p); }
  static void reference(const KvAppend& p) {
    const auto append = [&](const TensorRef& x, const TensorRef& cache) {
      write_tensor(reference::kv_append(read_tensor<double>(x), read_tensor<double>(p.slots),
                                        read_tensor<double>(cache)),
                   cache);
    };
    append(p.k, p.k_cache);
    append(p.v, p.v_cache);
  }
};

template <class Exec>
struct List<KvGather, Exec> : UsualList<KvGather, Exec> {
  static void kokkos(const Exec& exec, const KvGather& p, const Workspace&) { kv_gather_kokkos(exec, p); }
  static void reference(const KvGather& p) {
    const auto gather = [&](const TensorRef& cache, const TensorRef& x) {
      write_tensor(reference::kv_gather(read_tensor<double>(cache), read_tensor<double>(p.pages), p.page_tokens,
                                        x.extent[0]),
                   x);
    };
    gather(p.k_cache, p.k);
    gather(p.v_cache, p.v);
  }
};

template <class Exec>
struct List<KvCopy, Exec> : UsualList<KvCopy, Exec> {
  static void kokkos(const Exec& exec, const KvCopy& p, const Workspace&) { kv_copy_kokkos(exec, p); }
  static void reference(const KvCopy& p) { write_tensor(read_tensor<double>(p.from), p.to); }
};

template <class Exec>
struct List<KvCompact, Exec> : UsualList<KvCompact, Exec> {
  static void kokkos(const Exec& exec, const KvCompact& p, const Workspace&) { kv_compact_kokkos(exec, p); }
  static void reference(const KvCompact& p) {
    write_tensor(reference::kv_compact(read_tensor<double>(p.cache), read_tensor<double>(p.kept)), p.cache);
  }
};

template <class Exec>
struct List<KvAppendInt8, Exec> : UsualList<KvAppendInt8, Exec> {
  static void kokkos(const Exec& exec, const KvAppendInt8& p, const Workspace&) {
    kv_append_int8_kokkos(exec, p);
  }
  static void reference(const KvAppendInt8& p) {
    dispatch_dtype(compute_dtype(p.k.dtype), [&]<class C>(std::type_identity<C>) { append<compute_t<C>>(p); });
  }

 private:
  template <class C>
  static void append(const KvAppendInt8& p) {
    const auto append_one = [&](const TensorRef& x, const KvCodes& cache) {
      const auto r = reference::kv_append_int8<C>(read_tensor<C>(x), read_tensor<C>(p.slots),
                                                  {read_tensor<C>(cache.codes), read_tensor<C>(cache.scale)});
      write_tensor(r.codes, cache.codes);
      write_tensor(r.scale, cache.scale);
    };
    append_one(p.k, p.k_cache);
    append_one(p.v, p.v_cache);
  }
};

template <class Exec>
struct List<KvGatherInt8, Exec> : UsualList<KvGatherInt8, Exec> {
  static void kokkos(const Exec& exec, const KvGatherInt8& p, const Workspace&) {
    kv_gather_int8_kokkos(exec, p);
  }
  static void reference(const KvGatherInt8& p) {
    const auto gather = [](const KvCodes& cache, const TensorRef& x) {
      write_tensor(reference::kv_gather_int8<double>(
                       {read_tensor<double>(cache.codes), read_tensor<double>(cache.scale)}),
                   x);
    };
    gather(p.k_cache, p.k);
    gather(p.v_cache, p.v);
  }
};

template <class Exec>
struct List<KvAttentionMass, Exec> : UsualList<KvAttentionMass, Exec> {
  static void kokkos(const Exec& exec, const KvAttentionMass& p, const Workspace&) {
    kv_attention_mass_kokkos(exec, p);
  }
  static void reference(const KvAttentionMass& p) {
    write_tensor(reference::kv_attention_mass<double, double>(
                     read_tensor<double>(p.q), read_tensor<double>(p.k), read_tensor<double>(p.lse),
                     read_tensor<double>(p.positions), read_tensor<double>(p.mass), p.options),
                 p.mass);
  }
};

template <class Exec>
struct List<KvHeavyHitters, Exec> : UsualList<KvHeavyHitters, Exec> {
  static void kokkos(const Exec& exec, const KvHeavyHitters& p, const Workspace&) {
    kv_heavy_hitters_kokkos(exec, p);
  }
  static void reference(const KvHeavyHitters& p) {
    write_tensor(reference::kv_heavy_hitters(read_tensor<double>(p.mass), p.recent, p.kept.extent[2]), p.kept);
  }
};

template <class Exec>
struct List<KvMask, Exec> : UsualList<KvMask, Exec> {
  static void kokkos(const Exec& exec, const KvMask& p, const Workspace&) { kv_mask_kokkos(exec, p); }
  static void reference(const KvMask& p) {
    write_tensor(
        reference::kv_mask(read_tensor<double>(p.positions), p.bias.extent[0], p.bias.extent[1], p.options),
        p.bias);
  }
};

}  // namespace kformer::Impl
