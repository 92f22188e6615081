// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/cuda/entries.hpp"
#include "ops/lora/products.hpp"

/// \file
/// Adapters on CUDA: products by a library, which adds the terms of a weight to those of its adapter in memory.

namespace kformer::Impl::cuda {

inline bool batch_invariant(const LoraForward& p) { return p.options.batch_invariant; }
inline bool batch_invariant(const LoraBackwardInput&) { return false; }

/// Calls `f` with the products of one sum each, in an order in which they may run. The terms of an adapter come
/// first: they are smaller than those of the weight, and where the result has 16 bits, they are rounded twice.
template <class T, class F>
void for_each_single_product(const LoraProducts<T>& all, const F& f) {
  for (std::size_t i = 0; i < all.low_count; ++i) f(all.low[i]);
  for (std::size_t i = 0; i < all.full_count; ++i) {
    MatrixProduct<T, T> weight = all.full[i];
    if (weight.more_inner > 0) {
      MatrixProduct<T, T> adapter = weight;
      adapter.inner = weight.more_inner, adapter.more_inner = 0;
      adapter.left = weight.more_left, adapter.right = weight.more_right;
      f(adapter);
      weight.addend = weight.result, weight.addend_row_stride = weight.row_stride;
      weight.more_inner = 0;
    }
    f(weight);
  }
}

/// A workspace is not needed; one that is given widens the library's choice.
template <class P, class Exec, class Library = CublasLt>
struct LoraEntry {
  static constexpr Kernel<P, Exec> entry() { return {Library::name, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (batch_invariant(p)) return not_batch_invariant;
    Device<Exec>::make_current(Exec());  // the library chooses for the device of the calling thread
    std::string why;
    with_lora_products(p, [&](const auto& all) {
      for_each_single_product(all, [&](const auto& q) {
        if (why.empty()) why = LibraryProducts<Library>::refusal(plan_of(q, false));
      });
    });
    return why;
  }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    Device<Exec>::make_current(exec);
    const std::string text = label<P>(Library::name);
    with_lora_products(p, [&](const auto& all) {
      for_each_single_product(
          all, [&](const auto& q) { LibraryProducts<Library>::run(text, exec, q, false, workspace); });
    });
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<LoraForward, Kokkos::Cuda> : Entries<cuda::LoraEntry<LoraForward, Kokkos::Cuda>> {};
template <>
struct DeviceEntries<LoraBackwardInput, Kokkos::Cuda>
    : Entries<cuda::LoraEntry<LoraBackwardInput, Kokkos::Cuda>> {};

}  // namespace kformer::Impl
#endif
