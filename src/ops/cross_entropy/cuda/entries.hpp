// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/device.hpp"
#include "ops/common/list.hpp"
#include "ops/cross_entropy/cuda/arguments.hpp"
#include "ops/cross_entropy/host/entries.hpp"

/// \file
/// The entries of CUDA kernel lists that read logits 16 bytes at a time.

namespace kformer::Impl::cuda {

/// The common refusals of both directions.
template <class Exec>
std::string logits_refusal(const TensorRef& logits) {
  if (logits.dtype == DType::f64) return "logits are stored as f64, but it supports only f32, bf16 and f16";
  // Numbers of rows and of logits are 32-bit numbers in kernels; a thread goes past the end by less than this.
  if (logits.extent[0] >= std::int64_t(1) << 31 || logits.extent[1] > std::int64_t(1) << 30)
    return "extents exceed 32 bits";
  return capability_refusal(80, Device<Exec>::capability());
}

template <class Exec>
struct CrossEntropyForwardEntry {
  using P = CrossEntropyForward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_chunks", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return logits_refusal<Exec>(p.logits); }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    CrossEntropyArguments a = host::cross_entropy_arguments(p);
    a.loss = p.loss.data;
    announced("kformer::cross_entropy_forward[cuda_chunks]", exec, [&] {
      cross_entropy_forward(Device<Exec>::stream(exec), p.logits.dtype, p.logits.extent[0], a);
    });
  }
};

template <class Exec>
struct CrossEntropyBackwardEntry {
  using P = CrossEntropyBackward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_chunks", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    for (std::int64_t row = 0; row < std::min<std::int64_t>(p.logits.extent[0], 2); ++row)
      if (beyond_chunk(p.logits, row) != beyond_chunk(p.dlogits, row))
        return "rows of logits and dlogits are not equally aligned with respect to 16 bytes";
    return logits_refusal<Exec>(p.logits);
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    CrossEntropyArguments a = host::cross_entropy_arguments(p);
    a.dloss = p.dloss.data;
    a.dlogits = p.dlogits.data;
    a.dlogits_stride = p.dlogits.stride[0];
    announced("kformer::cross_entropy_backward[cuda_chunks]", exec, [&] {
      cross_entropy_backward(Device<Exec>::stream(exec), p.logits.dtype, p.logits.extent[0], a);
    });
  }

 private:
  /// Bytes that a row begins past a multiple of 16; all rows have those of the first two, and so on.
  static std::uintptr_t beyond_chunk(const TensorRef& x, std::int64_t row) {
    return (reinterpret_cast<std::uintptr_t>(x.data) +
            static_cast<std::uintptr_t>(row * x.stride[0]) * size_of(x.dtype)) %
           16;
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<CrossEntropyForward, Kokkos::Cuda>
    : Entries<cuda::CrossEntropyForwardEntry<Kokkos::Cuda>> {};
template <>
struct DeviceEntries<CrossEntropyBackward, Kokkos::Cuda>
    : Entries<cuda::CrossEntropyBackwardEntry<Kokkos::Cuda>> {};

}  // namespace kformer::Impl
#endif
