// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/vector_entries.hpp"
#include "ops/common/list.hpp"
#include "ops/rope/cuda/arguments.hpp"
#include "ops/rope/host/entries.hpp"

/// \file
/// The entries of CUDA kernel lists that access 16 bytes at a time.

namespace kformer::Impl::cuda {

/// The two directions differ by a sign.
template <class P, class Exec, int direction>
struct RopeRotationEntry {
  static constexpr Kernel<P, Exec> entry() { return {"cuda_vector", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (std::string why = storage_refusal(p.q.dtype); !why.empty()) return why;
    const std::int64_t head_dim = p.q.extent[3], both = 32 / static_cast<std::int64_t>(size_of(p.q.dtype));
    if (head_dim % both != 0)
      return "head_dim " + std::to_string(head_dim) + " is not a multiple of " + std::to_string(both);
    const std::int64_t groups = rope_groups(p.q.extent[2] + p.k.extent[2]);
    if (std::string why = count_refusal(p.q.extent[0] * p.q.extent[1] * groups * (head_dim / both));
        !why.empty())
      return why;
    if (std::string why = alignment_refusal({{"q", &p.q}, {"k", &p.k}, {"cos", &p.cos}, {"sin", &p.sin}});
        !why.empty())
      return why;
    return capability_refusal(vector_capability, Device<Exec>::capability());
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    constexpr const char* label =
        direction > 0 ? "kformer::rope_forward[cuda_vector]" : "kformer::rope_backward[cuda_vector]";
    announced(label, exec, [&] {
      rope_rotate(label, Device<Exec>::stream(exec), p.q.dtype, p.layout == RopeLayout::half_split,
                  host::rope_arguments(p, direction), p.q.extent[0] * p.q.extent[1]);
    });
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<RopeForward, Kokkos::Cuda>
    : Entries<cuda::RopeRotationEntry<RopeForward, Kokkos::Cuda, +1>> {};
template <>
struct DeviceEntries<RopeBackward, Kokkos::Cuda>
    : Entries<cuda::RopeRotationEntry<RopeBackward, Kokkos::Cuda, -1>> {};

}  // namespace kformer::Impl
#endif
