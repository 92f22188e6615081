// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>

#include "kformer/core/kernel_list.hpp"
#include "kformer/ops/impl/launch.hpp"

/// \file
/// The seam between the public `kernels<Problem, Exec>()` and the lists of the blocks. A block's `list.hpp`
/// specialises `List` for its problems; the build defines `kernels` from it for every execution space of
/// Kokkos.

namespace kformer {

namespace Impl {
/// `static KernelList<Problem, Exec> get()`, specialised per problem.
template <class Problem, class Exec>
struct List;

/// The reference runs on the host only; on other spaces the portable kernel is the last entry.
template <class Exec, std::size_t N, class K>
auto without_reference_on_device(const std::array<K, N>& all) {
  return std::span<const K>(all.data(), is_host_space<Exec> ? N : N - 1);
}

/// The tuned entries of a problem on a space, best first; specialised in `ops/<block>/cuda/entries.hpp` where
/// there are some.
template <class P, class Exec>
struct DeviceEntries {
  static constexpr std::array<Kernel<P, Exec>, 0> all{};
};

/// The list that most problems have: on hosts the SIMD kernels, best first, then `Parts::kokkos_entry` and
/// `Parts::reference_entry`; elsewhere the entries of the device and the portable kernel.
template <class P, class Exec, class Parts, std::size_t (*portable_workspace)(const P&), class... Simd>
KernelList<P, Exec> simd_list() {
  static constexpr Kernel<P, Exec> portable{"kokkos", never_rejects<P>, portable_workspace,
                                            Parts::kokkos_entry};
  if constexpr (is_host_space<Exec>) {
    static constexpr std::array<Kernel<P, Exec>, sizeof...(Simd) + 2> all{
        {Simd::entry()..., portable, {"reference", never_rejects<P>, no_workspace<P>, Parts::reference_entry}}};
    return all;
  } else {
    static constexpr auto all = [] {
      constexpr auto& tuned = DeviceEntries<P, Exec>::all;
      std::array<Kernel<P, Exec>, tuned.size() + 1> list{};
      std::copy(tuned.begin(), tuned.end(), list.begin());
      list.back() = portable;
      return list;
    }();
    return all;
  }
}
}  // namespace Impl

}  // namespace kformer
