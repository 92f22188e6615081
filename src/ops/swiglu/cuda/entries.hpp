// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/swiglu.hpp"
#include "ops/common/cuda/vector_entries.hpp"
#include "ops/common/host_rows.hpp"
#include "ops/common/list.hpp"
#include "ops/swiglu/cuda/arguments.hpp"

/// \file
/// The entries of CUDA kernel lists that access 16 bytes at a time.

namespace kformer::Impl::cuda {

/// What both directions refuse of the extents of all operands.
inline std::string swiglu_refusal(const TensorRef& x) {
  if (std::string why = storage_refusal(x.dtype); !why.empty()) return why;
  if (std::string why = row_refusal(x.extent[1], x.dtype); !why.empty()) return why;
  return count_refusal(host::bytes_of(x) / 16);
}

template <class Exec>
struct SwigluForwardEntry {
  using P = SwigluForward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_vector", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (std::string why = swiglu_refusal(p.gate); !why.empty()) return why;
    if (std::string why = alignment_refusal({{"gate", &p.gate}, {"up", &p.up}, {"y", &p.y}}); !why.empty())
      return why;
    return capability_refusal(vector_capability, Device<Exec>::capability());
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    const SwigluForwardArguments a{host::input_rows(p.gate), host::input_rows(p.up),
                                   host::output_rows(p.y, false, {})};
    announced("kformer::swiglu_forward[cuda_vector]", exec, [&] {
      swiglu_forward(Device<Exec>::stream(exec), p.gate.dtype, a, p.gate.extent[0], p.gate.extent[1]);
    });
  }
};

template <class Exec>
struct SwigluBackwardEntry {
  using P = SwigluBackward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_vector", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (std::string why = swiglu_refusal(p.gate); !why.empty()) return why;
    if (std::string why = alignment_refusal(
            {{"gate", &p.gate}, {"up", &p.up}, {"dy", &p.dy}, {"dgate", &p.dgate}, {"dup", &p.dup}});
        !why.empty())
      return why;
    return capability_refusal(vector_capability, Device<Exec>::capability());
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    const SwigluBackwardArguments a{host::input_rows(p.gate), host::input_rows(p.up), host::input_rows(p.dy),
                                    host::output_rows(p.dgate, false, {}), host::output_rows(p.dup, false, {})};
    announced("kformer::swiglu_backward[cuda_vector]", exec, [&] {
      swiglu_backward(Device<Exec>::stream(exec), p.gate.dtype, a, p.gate.extent[0], p.gate.extent[1]);
    });
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<SwigluForward, Kokkos::Cuda> : Entries<cuda::SwigluForwardEntry<Kokkos::Cuda>> {};
template <>
struct DeviceEntries<SwigluBackward, Kokkos::Cuda> : Entries<cuda::SwigluBackwardEntry<Kokkos::Cuda>> {};

}  // namespace kformer::Impl
#endif
