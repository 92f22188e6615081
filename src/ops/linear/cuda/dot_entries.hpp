// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/vector_entries.hpp"
#include "ops/common/host_rows.hpp"
#include "ops/common/list.hpp"
#include "ops/linear/cuda/dot_arguments.hpp"
#include "ops/linear/product.hpp"

/// \file
/// The entry of the CUDA kernel list of the linear map for few rows.

namespace kformer::Impl::cuda {

template <class Exec>
struct LinearDotEntry {
  using P = LinearForward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_dots", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (std::string why = storage_refusal(p.x.dtype); !why.empty()) return why;
    if (p.options.batch_invariant) return not_batch_invariant;
    if (p.x.rank != 2) return "it multiplies matrices, not batches of them";
    if (p.x.extent[0] > linear_dot_rows)
      return "x has " + std::to_string(p.x.extent[0]) + " rows, but it takes at most " +
             std::to_string(linear_dot_rows);
    if (std::string why = row_refusal(p.x.extent[1], p.x.dtype); !why.empty()) return why;
    if (std::string why = alignment_refusal({{"x", &p.x}, {"weight", &p.weight}}); !why.empty()) return why;
    if (std::string why = count_refusal(p.weight.extent[0]); !why.empty()) return why;
    return capability_refusal(vector_capability, Device<Exec>::capability());
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    announced("kformer::linear_forward[cuda_dots]", exec, [&] {
      linear_dots(
          Device<Exec>::stream(exec), p.x.dtype,
          {host::input_rows(p.x), host::input_rows(p.weight), addend(p), host::output_rows(p.y, false, {}),
           p.x.extent[0], p.x.extent[1], p.weight.extent[0], static_cast<float>(p.options.scale)});
    });
  }

 private:
  static host::InputRows addend(const P& p) {
    if (p.bias.present()) return {p.bias.data, 0};
    return host::input_rows(p.residual);
  }
};

}  // namespace kformer::Impl::cuda
