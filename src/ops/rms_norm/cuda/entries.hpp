// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "ops/common/cuda/vector_entries.hpp"
#include "ops/common/host_rows.hpp"
#include "ops/common/list.hpp"
#include "ops/rms_norm/cuda/arguments.hpp"
#include "ops/rms_norm/kokkos.hpp"

/// \file
/// The entries of CUDA kernel lists that access 16 bytes at a time.

namespace kformer::Impl::cuda {

/// What both directions refuse of rows.
inline std::string norm_row_refusal(const TensorRef& x) {
  if (std::string why = storage_refusal(x.dtype); !why.empty()) return why;
  if (x.rank == 3) return "it takes the rows of a matrix, not the heads of tokens";
  if (std::string why = row_refusal(x.extent[1], x.dtype); !why.empty()) return why;
  const std::int64_t bytes = x.extent[1] * static_cast<std::int64_t>(size_of(x.dtype));
  if (bytes > most_row_bytes)
    return "a row has " + std::to_string(bytes) + " bytes, but it keeps at most " +
           std::to_string(most_row_bytes) + " in registers";
  return count_refusal(x.extent[0]);
}

template <class Exec>
struct RmsNormForwardEntry {
  using P = RmsNormForward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_vector", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (std::string why = norm_row_refusal(p.x); !why.empty()) return why;
    if (std::string why = alignment_refusal(
            {{"x", &p.x}, {"residual", &p.residual}, {"weight", &p.weight}, {"sum", &p.sum}, {"y", &p.y}});
        !why.empty())
      return why;
    return capability_refusal(vector_capability, Device<Exec>::capability());
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    const RmsNormForwardArguments a{host::input_rows(p.x),
                                    host::input_rows(p.residual),
                                    p.weight.data,
                                    host::output_rows(p.sum, false, {}),
                                    host::output_rows(p.y, false, {}),
                                    p.rstd.data,
                                    p.x.extent[1],
                                    p.eps};
    announced("kformer::rms_norm_forward[cuda_vector]", exec,
              [&] { rms_norm_forward(Device<Exec>::stream(exec), p.x.dtype, a, p.x.extent[0]); });
  }
};

/// A block has enough rows that its share of the weight gradient is little beside them. At least as many blocks
/// as the portable kernel has, which takes over with the same workspace where operands are not aligned.
inline std::int64_t norm_rows_per_block(std::int64_t rows) {
  return std::max<std::int64_t>(1, ceil_div(rows, std::clamp<std::int64_t>(rows / 8, 64, 256)));
}
inline std::int64_t norm_row_blocks(std::int64_t rows) { return ceil_div(rows, norm_rows_per_block(rows)); }

template <class Exec>
struct RmsNormBackwardEntry {
  using P = RmsNormBackward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_vector", reject, workspace_bytes, run}; }

  static std::string reject(const P& p) {
    if (std::string why = norm_row_refusal(p.x); !why.empty()) return why;
    if (std::string why = alignment_refusal({{"x", &p.x},
                                             {"weight", &p.weight},
                                             {"dy", &p.dy},
                                             {"dsum", &p.dsum},
                                             {"dx", &p.dx},
                                             {"dweight", &p.dweight}});
        !why.empty())
      return why;
    return capability_refusal(vector_capability, Device<Exec>::capability());
  }
  static std::size_t workspace_bytes(const P& p) {
    return static_cast<std::size_t>(norm_row_blocks(p.x.extent[0]) * p.x.extent[1]) * sizeof(float);
  }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    const std::int64_t rows = p.x.extent[0];
    const RmsNormBackwardArguments a{host::input_rows(p.x),
                                     p.weight.data,
                                     p.rstd.data,
                                     host::input_rows(p.dy),
                                     host::input_rows(p.dsum),
                                     host::output_rows(p.dx, false, {}),
                                     workspace.data,
                                     p.dweight.size() > 0 ? p.dweight.data : nullptr,
                                     rows,
                                     p.x.extent[1],
                                     norm_rows_per_block(rows),
                                     norm_row_blocks(rows)};
    announced("kformer::rms_norm_backward[cuda_vector]", exec,
              [&] { rms_norm_backward(Device<Exec>::stream(exec), p.x.dtype, a); });
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<RmsNormForward, Kokkos::Cuda> : Entries<cuda::RmsNormForwardEntry<Kokkos::Cuda>> {};
template <>
struct DeviceEntries<RmsNormBackward, Kokkos::Cuda> : Entries<cuda::RmsNormBackwardEntry<Kokkos::Cuda>> {};

}  // namespace kformer::Impl
#endif
