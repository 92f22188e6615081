// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/embedding.hpp"
#include "ops/common/cuda/vector_entries.hpp"
#include "ops/common/host_rows.hpp"
#include "ops/common/list.hpp"
#include "ops/embedding/cuda/arguments.hpp"

/// \file
/// The entry of the CUDA kernel list of the embedding's gradient.

namespace kformer::Impl::cuda {

template <class Exec>
struct EmbeddingBackwardEntry {
  using P = EmbeddingBackward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_vector", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (std::string why = storage_refusal(p.dy.dtype); !why.empty()) return why;
    const std::int64_t hidden = p.dweight.extent[1];
    if (std::string why = row_refusal(hidden, p.dy.dtype); !why.empty()) return why;
    if (std::string why = alignment_refusal({{"dy", &p.dy}, {"dweight", &p.dweight}}); !why.empty()) return why;
    if (std::string why = count_refusal(embedding_classes * ceil_div(hidden, embedding_columns(p.dy.dtype)));
        !why.empty())
      return why;
    return capability_refusal(vector_capability, Device<Exec>::capability());
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    announced("kformer::embedding_backward[cuda_vector]", exec, [&] {
      embedding_backward(
          Device<Exec>::stream(exec), p.dy.dtype,
          {static_cast<const std::int32_t*>(p.ids.data), host::input_rows(p.dy), p.dweight.data,
           p.dweight.stride[0], p.ids.extent[0], p.dweight.extent[0], p.dweight.extent[1], embedding_classes});
    });
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<EmbeddingBackward, Kokkos::Cuda> : Entries<cuda::EmbeddingBackwardEntry<Kokkos::Cuda>> {};

}  // namespace kformer::Impl
#endif
