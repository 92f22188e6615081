// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <string>
#include <utility>

#include "kformer/core/kernel_list.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "ops/common/host_tensor.hpp"
#include "ops/common/label.hpp"
#include "ops/common/simd/isa.hpp"
#include "ops/common/simd_entries.hpp"

/// \file
/// The seam between the public `kernels<Problem, Exec>()` and the lists of the blocks. A block's `list.hpp`
/// specialises `List` for its problems; the build defines `kernels` from it for every execution space of
/// Kokkos.

namespace kformer::Impl {

/// `static KernelList<Problem, Exec> get()`, specialised per problem; most derive it from `UsualList`.
template <class Problem, class Exec>
struct List;

/// The tuned entries of a problem on a space; specialised in `ops/<block>/cuda/entries.hpp` where there are
/// some.
template <class P, class Exec>
struct DeviceEntries {
  static constexpr std::array<Kernel<P, Exec>, 0> all{};
};

/// The base of such a specialisation: the tuned entries, best first.
template <class... Tuned>
struct Entries {
  static constexpr std::array all{Tuned::entry()...};
};

/// The SIMD kernels `Entry<Exec, isa>` in the order of the instruction sets; they run on hosts only.
template <template <class, host::Isa> class Entry, host::Isa... isas>
struct SimdEntries {
  template <class P, class Exec>
  static constexpr auto on() {
    if constexpr (is_host_space<Exec>)
      return std::array<Kernel<P, Exec>, sizeof...(isas)>{{Entry<Exec, isas>::entry()...}};
    else
      return std::array<Kernel<P, Exec>, 0>{};
  }
};

/// The SIMD kernels for `special` instruction sets and for those that every block has, best first.
template <template <class, host::Isa> class Entry, host::Isa... special>
using Simd = SimdEntries<Entry, special..., host::Isa::avx512, host::Isa::avx2, host::Isa::generic>;

/// Runs `List::reference`, plain host code, as one work item on the instance: so it keeps the order of the
/// instance, and tools see it like any kernel.
template <class P, class Exec>
void run_reference(const Exec& exec, const P& p, const Workspace&) {
  Kokkos::parallel_for(label<P>("reference"), Kokkos::RangePolicy<Exec>(exec, 0, 1),
                       [p](int) { List<P, Exec>::reference(p); });
}

/// The reference; it runs on hosts only.
template <class P, class Exec>
constexpr auto reference_entries() {
  if constexpr (is_host_space<Exec>)
    return std::array<Kernel<P, Exec>, 1>{
        {{"reference", never_rejects<P>, no_workspace<P>, run_reference<P, Exec>}}};
  else
    return std::array<Kernel<P, Exec>, 0>{};
}

/// The entries of all arrays in one array, in order.
template <class P, class Exec, class... Arrays>
constexpr auto join(const Arrays&... parts) {
  std::array<Kernel<P, Exec>, (std::tuple_size_v<Arrays> + ...)> all{};
  std::size_t n = 0;
  const auto append = [&](const auto& part) {
    for (const auto& kernel : part) all[n++] = kernel;
  };
  (append(parts), ...);
  return all;
}

/// A list whose kernels for AVX512_BF16 multiply pairs of bf16: where that is slow, those for AVX-512 come first.
template <class P, class Exec, std::size_t n>
KernelList<P, Exec> by_speed_of_bf16_pairs(const std::array<Kernel<P, Exec>, n>& all) {
  if (host::has_fast_bf16_pairs()) return all;
  static const auto reordered = [&] {
    auto list = all;
    for (std::size_t i = 1; i < n; ++i)
      if (list[i - 1].name == std::string(list[i].name) + "_bf16") std::swap(list[i - 1], list[i]);
    return list;
  }();
  return reordered;
}

/// The base of the lists that most problems have: the tuned entries of a device or of a host, best first, then
/// the portable kernel and the reference. The list itself has what only its problem knows:
///
///     static void kokkos(const Exec& exec, const P& p, const Workspace& workspace);
///     static void reference(const P& p);
///     static constexpr auto kokkos_workspace = …;    // where the portable kernel needs one
///     static constexpr bool multiplies_pairs = true;  // see `by_speed_of_bf16_pairs`
template <class P, class Exec, class... SimdKernels>
struct UsualList {
  static constexpr auto kokkos_workspace = no_workspace<P>;
  static constexpr bool multiplies_pairs = false;

  static KernelList<P, Exec> get() {
    using Own = List<P, Exec>;
    static constexpr std::array<Kernel<P, Exec>, 1> portable{
        {{"kokkos", never_rejects<P>, Own::kokkos_workspace, Own::kokkos}}};
    static constexpr auto all =
        join<P, Exec>(DeviceEntries<P, Exec>::all, SimdKernels::template on<P, Exec>()..., portable,
                      reference_entries<P, Exec>());
    if constexpr (Own::multiplies_pairs) return by_speed_of_bf16_pairs<P, Exec>(all);
    return all;
  }
};

}  // namespace kformer::Impl
