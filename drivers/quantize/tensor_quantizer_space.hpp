// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "kformer/load/load_weights.hpp"
#include "kformer/memory/transfer.hpp"
#include "kformer/ops/ternary.hpp"
#include "quantize/plan.hpp"
#include "quantize/row_errors.hpp"
#include "quantize/tensor_quantizer.hpp"
#include "quantize/ternary_blocks.hpp"

/// \file
/// Definition of `make_tensor_quantizer_on`.

namespace kformer::drivers {

template <class Exec>
class TensorQuantizerOn final : public TensorQuantizer {
 public:
  QuantizedTensor run(const std::string& name, const CheckpointTensor& tensor,
                      std::optional<QuantizedFormat> format) override {
    const auto [rows, cols] = extents_of(tensor);
    QuantizedTensor result;
    if (format) result.blocks.resize(quantized_bytes(*format, rows, cols));
    const std::int64_t most =
        is_one_band(tensor.type, format) ? rows : std::clamp<std::int64_t>(weights_in_a_band / cols, 1, rows);
    for (std::int64_t first = 0; first < rows; first += most) {
      const std::int64_t count = std::min(most, rows - first);
      const Band band(m_exec, *m_ledger, rows_of(tensor, first, count), count, cols, format);
      load_dense(m_exec, band.source, tensor_ref(band.before), band.staging, *m_ledger);
      if (format) quantize_band(band, result.blocks.data() + first * quantized_row_bytes(*format, cols));
      const auto errors = row_errors(m_exec, band.before, format ? band.after : band.before);
      if (format) require_finite(errors, name, first, *format);
      for (const RowErrors& row : errors) result.errors += row.sums;
    }
    return result;
  }

 private:
  using Space = typename Exec::memory_space;

  static constexpr std::int64_t weights_in_a_band = std::int64_t(1) << 22;

  // Some rows of a tensor.
  struct Band {
    CheckpointTensor source;
    MemoryBlock<Space> staging, memory;
    BlockMatrix<Space, double> before, after;
    QuantizedOutput packed{};
    Workspace workspace;

    Band(const Exec& exec, Ledger& ledger, CheckpointTensor rows_of_it, std::int64_t rows, std::int64_t cols,
         std::optional<QuantizedFormat> format)
        : source(std::move(rows_of_it)) {
      MemoryLayout layout;
      const std::size_t before_at = layout.reserve<double>(rows * cols);
      const std::size_t after_at = layout.reserve<double>(format ? rows * cols : 0);
      const auto bytes = format ? static_cast<std::int64_t>(quantized_bytes(*format, rows, cols)) : 0;
      const std::size_t packed_at = layout.reserve<std::byte>(bytes);
      if (format && is_ternary(*format))
        workspace.bytes = ternary_quantize_workspace_bytes(exec, {*format, nullptr, rows, cols});
      const std::size_t workspace_at = layout.reserve<std::byte>(static_cast<std::int64_t>(workspace.bytes));
      memory = ledger.allocate(exec, MemoryClass::workspace, "kformer-quantize::band", layout.bytes());
      if (quantized_format_of(source.type))
        staging = ledger.allocate(exec, MemoryClass::io, "kformer-quantize::staging", source.bytes.size());
      before = kformer::Impl::matrix_in<double>(memory, before_at, rows, cols);
      if (!format) return;
      after = kformer::Impl::matrix_in<double>(memory, after_at, rows, cols);
      packed = {*format, memory.template at<std::byte>(packed_at), rows, cols};
      workspace.data = memory.template at<std::byte>(workspace_at);
    }
  };

  // Whether numbers of a matrix depend on all of its rows, before or after.
  static bool is_one_band(const StoredType& source, std::optional<QuantizedFormat> format) {
    const auto before = quantized_format_of(source);
    return (format && (is_ternary(*format) || !has_separate_rows(*format))) ||
           (before && !has_separate_rows(*before));
  }

  static CheckpointTensor rows_of(const CheckpointTensor& tensor, std::int64_t first, std::int64_t count) {
    const auto [rows, cols] = extents_of(tensor);
    if (count == rows) return tensor;
    const std::size_t row_bytes = tensor.bytes.size() / static_cast<std::size_t>(rows);
    const auto n = static_cast<std::size_t>(count);
    return {tensor.type,
            {n, static_cast<std::size_t>(cols)},
            tensor.bytes.subspan(static_cast<std::size_t>(first) * row_bytes, n * row_bytes)};
  }

  void quantize_band(const Band& band, std::byte* blocks) {
    const QuantizedOutput& packed = band.packed;
    if (is_ternary(packed.format) && !has_ternary_blocks(m_exec, band.before))
      ternary_quantize(m_exec, band.before, packed, band.workspace);
    else
      quantize(m_exec, band.before, packed);
    dequantize(m_exec, packed, band.after);
    transfer<Kokkos::HostSpace, Space>(m_exec, *m_ledger, blocks, packed.data,
                                       quantized_bytes(packed.format, packed.rows, packed.cols));
    m_exec.fence("kformer-quantize");
  }

  static void require_finite(const std::vector<RowErrors>& rows, const std::string& name, std::int64_t first,
                             QuantizedFormat format) {
    const auto require = [&](bool RowErrors::* finite, const char* otherwise) {
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const RowErrors& r) { return !(r.*finite); });
      if (row != rows.end())
        throw FileError(fmt::format("'{}' cannot be quantised to {}: row {} has a weight that is {}", name,
                                    to_string(format), first + (row - rows.begin()), otherwise));
    };
    require(&RowErrors::finite_before, "not finite");
    // One weight of NF4 that is not finite spoils the offset of all rows.
    if (has_separate_rows(format))
      require(&RowErrors::finite_after, "too large for a scale in binary16");
    else if (!rows.empty() && !rows.front().finite_after)
      throw FileError(fmt::format("'{}' cannot be quantised to {}: it has a weight that is too large for float",
                                  name, to_string(format)));
  }

  Exec m_exec;
  std::shared_ptr<Ledger> m_ledger = Ledger::create();
};

template <class Exec>
std::unique_ptr<TensorQuantizer> make_tensor_quantizer_on() {
  return std::make_unique<TensorQuantizerOn<Exec>>();
}

}  // namespace kformer::drivers
