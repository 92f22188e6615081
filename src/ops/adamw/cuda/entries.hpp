// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/cuda/arguments.hpp"
#include "ops/adamw/kokkos.hpp"
#include "ops/common/cuda/device.hpp"
#include "ops/common/list.hpp"

/// \file
/// The entries of CUDA kernel lists with 16-byte accesses.

namespace kformer::Impl::cuda {

static_assert(adamw_piece == adamw_piece_elements && AdamWBatch::capacity == AdamWPieces::capacity);

inline AdamWPieces pieces_of(const AdamWBatch& batch) {
  AdamWPieces all{};
  all.count = batch.count;
  all.pieces = batch.pieces;
  std::copy_n(batch.first_piece, batch.count, all.first_piece);
  std::copy_n(batch.items, batch.count, all.items);
  return all;
}

/// The common refusals of both. A batch has as many blocks as pieces.
template <class Exec>
std::string pieces_refusal(std::span<const AdamWParameter> parameters) {
  if (adamw_pieces(parameters) > (std::int64_t(1) << 31) - 1) return "it numbers pieces with 32 bits";
  return capability_refusal(80, Device<Exec>::capability());
}

template <class Exec>
struct AdamWEntry {
  using P = AdamW;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_chunks", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return pieces_refusal<Exec>(p.parameters); }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    const GradientScaling scaling = gradient_scaling(p);
    for_each_kind_of_batch(
        p.parameters, [&]<class T, bool is_coded>(const AdamWBatch& batch, std::type_identity<T>,
                                                  std::bool_constant<is_coded>) {
          constexpr auto step = is_coded ? adamw_coded_step : adamw_step;
          announced(is_coded ? "kformer::adamw_coded[cuda_chunks]" : "kformer::adamw[cuda_chunks]", exec, [&] {
            step(Device<Exec>::stream(exec), dtype_of<T>, pieces_of(batch), adamw_numbers(p.options),
                 {scaling.norm, scaling.scale, scaling.max_norm});
          });
        });
  }
};

template <class Exec>
struct GradientNormEntry {
  using P = GradientNorm;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_chunks", reject, gradient_norm_workspace, run}; }

  static std::string reject(const P& p) { return pieces_refusal<Exec>(p.parameters); }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    const DType type = p.norm.dtype;
    auto* sums = static_cast<double*>(workspace.data);
    std::int64_t done = 0;
    for_each_batch(
        p.parameters, [](const AdamWParameter&) { return true; },
        [&](const AdamWBatch& batch) {
          announced("kformer::gradient_norm[cuda_chunks]", exec,
                    [&] { gradient_squares(Device<Exec>::stream(exec), type, pieces_of(batch), sums + done); });
          done += batch.pieces;
        });
    announced("kformer::gradient_norm_sum[cuda_chunks]", exec,
              [&] { gradient_root(Device<Exec>::stream(exec), type, sums, done, p.norm.data); });
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<AdamW, Kokkos::Cuda> : Entries<cuda::AdamWEntry<Kokkos::Cuda>> {};
template <>
struct DeviceEntries<GradientNorm, Kokkos::Cuda> : Entries<cuda::GradientNormEntry<Kokkos::Cuda>> {};

}  // namespace kformer::Impl
#endif
