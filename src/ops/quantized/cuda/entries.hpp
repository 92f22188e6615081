// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/ops/quantized.hpp"
#include "ops/common/cuda/vector_entries.hpp"
#include "ops/common/host_rows.hpp"
#include "ops/common/list.hpp"
#include "ops/quantized/cuda/stream.hpp"
#include "ops/quantized/kokkos_linear.hpp"

/// \file
/// The entry of CUDA kernel lists for products of few rows with quantised weights.

namespace kformer::Impl::cuda {

template <class Exec>
struct QuantizedLinearEntry {
  using P = QuantizedLinearForward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_dots", reject, workspace_bytes, run}; }

  static std::string reject(const P& p) {
    if (std::string why = storage_refusal(p.x.dtype); !why.empty()) return why;
    if (reinterpret_cast<std::uintptr_t>(p.weight.data) % 16 != 0) return "weight is not aligned to 16 bytes";
    if (std::string why = is_int8(p) ? int8_refusal(p) : full_refusal(p); !why.empty()) return why;
    if (std::string why = count_refusal(blocks_of(p)); !why.empty()) return why;
    return capability_refusal(vector_capability, Device<Exec>::capability());
  }

  /// Codes of x, then what they are multiplied with.
  static std::size_t workspace_bytes(const P& p) {
    if (!is_int8(p)) return 0;
    const Int8Activations layout = int8_activations(p, nullptr);
    return static_cast<std::size_t>(p.x.extent[0] * (layout.row_codes + layout.row_groups * sizeof_numbers));
  }

  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    const QuantizedDotArguments a{host::input_rows(p.x),
                                  host::input_rows(p.residual),
                                  host::input_rows(p.adapter.left),
                                  host::input_rows(p.adapter.right),
                                  host::output_rows(p.y, false, {}),
                                  reinterpret_cast<const std::uint8_t*>(p.weight.data),
                                  quantized_row_bytes(p.weight.format, p.weight.cols),
                                  row_blocks(p.weight),
                                  p.x.extent[0],
                                  p.weight.cols,
                                  p.weight.rows,
                                  p.adapter.rank(),
                                  p.options.scale,
                                  int8_activations(p, workspace.data)};
    announced("kformer::quantized_linear_forward[cuda_dots]", exec, [&] {
      const auto dots = is_int8(p) ? quantized_int8_dots : quantized_dots;
      dots(Device<Exec>::stream(exec), p.x.dtype, p.weight.format, a);
    });
  }

 private:
  static constexpr std::int64_t sizeof_numbers = sizeof(Int8Activations::Numbers);

  static bool is_int8(const P& p) { return p.options.activations == Activations::int8; }

  /// Of threads, in the larger launch.
  static std::int64_t blocks_of(const P& p) {
    const std::int64_t dots = dot_blocks(p.x.extent[0], p.weight.rows);
    return is_int8(p) ? std::max(dots, p.x.extent[0] * int8_activations(p, nullptr).row_groups) : dots;
  }

  static std::string full_refusal(const P& p) {
    if (p.options.batch_invariant)
      return "many rows would have another kernel, which sums in another order, and batch_invariant is set";
    if (p.x.extent[0] > most_rows_without_tiles)
      return "x has " + std::to_string(p.x.extent[0]) + " rows, but it reads the weights again for every " +
             std::to_string(dot_rows) + " and takes at most " + std::to_string(most_rows_without_tiles);
    return alignment_refusal({{"x", &p.x}});
  }
  /// The rows of x are read number by number, once, so that any number of them at any address has the same
  /// kernel.
  static std::string int8_refusal(const P& p) {
    if (has_integer_codes(p.weight.format)) return {};
    return "it multiplies 8-bit activations with integers, but the weights are values of a table";
  }

  static std::int64_t row_blocks(const QuantizedMatrix& weight) {
    return ceil_div(weight.cols, weights_per_block(weight.format));
  }
  static Int8Activations int8_activations(const P& p, void* memory) {
    const std::int64_t codes = row_blocks(p.weight) * weights_per_block(p.weight.format);
    auto* bytes = static_cast<std::uint8_t*>(memory);
    auto* numbers =
        memory ? reinterpret_cast<Int8Activations::Numbers*>(bytes + p.x.extent[0] * codes) : nullptr;
    return {bytes, numbers, codes, is_ternary(p.weight.format) ? 1 : codes / 32};
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<QuantizedLinearForward, Kokkos::Cuda> : Entries<cuda::QuantizedLinearEntry<Kokkos::Cuda>> {
};

}  // namespace kformer::Impl
#endif
