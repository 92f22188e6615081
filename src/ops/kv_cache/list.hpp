// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/kv_cache/kokkos.hpp"
#include "ops/kv_cache/kokkos_eviction.hpp"
#include "ops/kv_cache/kokkos_int8.hpp"
#include "ops/kv_cache/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<KvAppend, Exec> {
  using P = KvAppend;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) { kv_append_kokkos(exec, p); }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::kv_append[reference]", [p] {
        const auto append = [&](const TensorRef& x, const TensorRef& cache) {
          write_tensor(reference::kv_append(read_tensor<double>(x), read_tensor<double>(p.slots),
                                            read_tensor<double>(cache)),
                       cache);
        };
        append(p.k, p.k_cache);
        append(p.v, p.v_cache);
      });
  }
};

template <class Exec>
struct List<KvGather, Exec> {
  using P = KvGather;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) { kv_gather_kokkos(exec, p); }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::kv_gather[reference]", [p] {
        const auto gather = [&](const TensorRef& cache, const TensorRef& x) {
          write_tensor(reference::kv_gather(read_tensor<double>(cache), read_tensor<double>(p.pages),
                                            p.page_tokens, x.extent[0]),
                       x);
        };
        gather(p.k_cache, p.k);
        gather(p.v_cache, p.v);
      });
  }
};

template <class Exec>
struct List<KvCopy, Exec> {
  using P = KvCopy;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) { kv_copy_kokkos(exec, p); }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::kv_copy[reference]",
                  [p] { write_tensor(read_tensor<double>(p.from), p.to); });
  }
};

template <class Exec>
struct List<KvCompact, Exec> {
  using P = KvCompact;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) { kv_compact_kokkos(exec, p); }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::kv_compact[reference]", [p] {
        write_tensor(reference::kv_compact(read_tensor<double>(p.cache), read_tensor<double>(p.kept)), p.cache);
      });
  }
};

template <class Exec>
struct List<KvAppendInt8, Exec> {
  using P = KvAppendInt8;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) { kv_append_int8_kokkos(exec, p); }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::kv_append_int8[reference]", [p] {
        dispatch_dtype(compute_dtype(p.k.dtype),
                       [&]<class C>(std::type_identity<C>) { append<compute_t<C>>(p); });
      });
  }

 private:
  template <class C>
  static void append(const P& p) {
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
struct List<KvGatherInt8, Exec> {
  using P = KvGatherInt8;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) { kv_gather_int8_kokkos(exec, p); }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::kv_gather_int8[reference]", [p] {
        const auto gather = [](const KvCodes& cache, const TensorRef& x) {
          write_tensor(reference::kv_gather_int8<double>(
                           {read_tensor<double>(cache.codes), read_tensor<double>(cache.scale)}),
                       x);
        };
        gather(p.k_cache, p.k);
        gather(p.v_cache, p.v);
      });
  }
};

template <class Exec>
struct List<KvAttentionMass, Exec> {
  using P = KvAttentionMass;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    kv_attention_mass_kokkos(exec, p);
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::kv_attention_mass[reference]", [p] {
        write_tensor(reference::kv_attention_mass<double, double>(
                         read_tensor<double>(p.q), read_tensor<double>(p.k), read_tensor<double>(p.lse),
                         read_tensor<double>(p.positions), read_tensor<double>(p.mass), p.options),
                     p.mass);
      });
  }
};

template <class Exec>
struct List<KvHeavyHitters, Exec> {
  using P = KvHeavyHitters;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) { kv_heavy_hitters_kokkos(exec, p); }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::kv_heavy_hitters[reference]", [p] {
        write_tensor(reference::kv_heavy_hitters(read_tensor<double>(p.mass), p.recent, p.kept.extent[2]),
                     p.kept);
      });
  }
};

template <class Exec>
struct List<KvMask, Exec> {
  using P = KvMask;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) { kv_mask_kokkos(exec, p); }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::kv_mask[reference]", [p] {
        write_tensor(
            reference::kv_mask(read_tensor<double>(p.positions), p.bias.extent[0], p.bias.extent[1], p.options),
            p.bias);
      });
  }
};

}  // namespace kformer::Impl
