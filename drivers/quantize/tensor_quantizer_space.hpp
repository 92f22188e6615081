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
                      const std::optional<StoredType>& format) override {
    const auto [rows, cols] = extents_of(tensor.shape);
    QuantizedTensor result;
    result.bytes.reserve(format ? bytes_of(*format, rows, cols) : 0);
    const std::int64_t most =
        is_one_band(tensor.type, format) ? rows : std::clamp<std::int64_t>(weights_in_a_band / cols, 1, rows);
    for (std::int64_t first = 0; first < rows; first += most) {
      const std::int64_t count = std::min(most, rows - first);
      const Band band(m_exec, *m_ledger, rows_of(tensor, first, count), count, cols, format);
      load_dense(m_exec, band.source, tensor_ref(band.before), band.staging, *m_ledger);
      if (format) {
        const auto converted = quantized_format_of(*format) ? quantize_band(band) : round_band(band);
        result.bytes.insert(result.bytes.end(), converted.begin(), converted.end());
      }
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
    QuantizedOutput packed{};  // of a quantised format
    TensorRef rounded{};       // of another
    Workspace workspace;

    Band(const Exec& exec, Ledger& ledger, CheckpointTensor rows_of_it, std::int64_t rows, std::int64_t cols,
         const std::optional<StoredType>& format)
        : source(std::move(rows_of_it)) {
      MemoryLayout layout;
      const std::size_t before_at = layout.reserve<double>(rows * cols);
      const std::size_t after_at = layout.reserve<double>(format ? rows * cols : 0);
      const auto bytes = format ? static_cast<std::int64_t>(bytes_of(*format, rows, cols)) : 0;
      const std::size_t converted_at = layout.reserve<std::byte>(bytes);
      const auto quantized = format ? quantized_format_of(*format) : std::nullopt;
      if (quantized && is_ternary(*quantized))
        workspace.bytes = ternary_quantize_workspace_bytes(exec, {*quantized, nullptr, rows, cols});
      const std::size_t workspace_at = layout.reserve<std::byte>(static_cast<std::int64_t>(workspace.bytes));
      memory = ledger.allocate(exec, MemoryClass::workspace, "kformer-quantize::band", layout.bytes());
      if (quantized_format_of(source.type))
        staging = ledger.allocate(exec, MemoryClass::io, "kformer-quantize::staging", source.bytes.size());
      before = kformer::Impl::matrix_in<double>(memory, before_at, rows, cols);
      if (!format) return;
      after = kformer::Impl::matrix_in<double>(memory, after_at, rows, cols);
      workspace.data = memory.template at<std::byte>(workspace_at);
      if (quantized)
        packed = {*quantized, memory.template at<std::byte>(converted_at), rows, cols};
      else
        rounded = dispatch_dtype(std::get<DType>(*format), [&]<class T>(std::type_identity<T>) {
          return tensor_ref(kformer::Impl::matrix_in<T>(memory, converted_at, rows, cols));
        });
    }
  };

  // Whether numbers of a matrix depend on all of its rows, before or after.
  static bool is_one_band(const StoredType& source, const std::optional<StoredType>& format) {
    const auto before = quantized_format_of(source),
               after = format ? quantized_format_of(*format) : std::nullopt;
    return (after && (is_ternary(*after) || !has_separate_rows(*after))) ||
           (before && !has_separate_rows(*before));
  }

  static CheckpointTensor rows_of(const CheckpointTensor& tensor, std::int64_t first, std::int64_t count) {
    const auto [rows, cols] = extents_of(tensor.shape);
    if (count == rows) return tensor;
    const std::size_t row_bytes = tensor.bytes.size() / static_cast<std::size_t>(rows);
    const auto n = static_cast<std::size_t>(count);
    return {tensor.type,
            {n, static_cast<std::size_t>(cols)},
            tensor.bytes.subspan(static_cast<std::size_t>(first) * row_bytes, n * row_bytes)};
  }

  std::vector<std::byte> quantize_band(const Band& band) {
    const QuantizedOutput& packed = band.packed;
    if (is_ternary(packed.format) && !has_ternary_blocks(m_exec, band.before))
      ternary_quantize(m_exec, band.before, packed, band.workspace);
    else
      quantize(m_exec, band.before, packed);
    dequantize(m_exec, packed, band.after);
    return download(packed.data, quantized_bytes(packed.format, packed.rows, packed.cols));
  }

  std::vector<std::byte> round_band(const Band& band) {
    const TensorRef& to = band.rounded;
    load_dense(m_exec, band.source, to, band.staging, *m_ledger);
    auto bytes = download(to.data, static_cast<std::size_t>(to.size()) * size_of(to.dtype));
    load_dense(m_exec, {to.dtype, band.source.shape, bytes}, tensor_ref(band.after), {}, *m_ledger);
    return bytes;
  }

  std::vector<std::byte> download(const void* from, std::size_t count) {
    std::vector<std::byte> host(count);
    transfer<Kokkos::HostSpace, Space>(m_exec, *m_ledger, host.data(), from, count);
    m_exec.fence("kformer-quantize");
    return host;
  }

  static void require_finite(const std::vector<RowErrors>& rows, const std::string& name, std::int64_t first,
                             const StoredType& type) {
    const auto format = quantized_format_of(type);
    const std::string what =
        fmt::format("'{}' cannot be {} to {}: ", name, format ? "quantised" : "converted", to_string(type));
    const auto require = [&](bool RowErrors::* finite, const char* otherwise) {
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const RowErrors& r) { return !(r.*finite); });
      if (row != rows.end())
        throw FileError(
            fmt::format("{}row {} has a weight that is {}", what, first + (row - rows.begin()), otherwise));
    };
    require(&RowErrors::finite_before, "not finite");
    // One weight of NF4 that is not finite spoils the offset of all rows.
    if (!format || has_separate_rows(*format))
      require(&RowErrors::finite_after, format ? "too large for a scale in binary16" : "too large for it");
    else if (!rows.empty() && !rows.front().finite_after)
      throw FileError(what + "it has a weight that is too large for float");
  }

  Exec m_exec;
  std::shared_ptr<Ledger> m_ledger = Ledger::create();
};

template <class Exec>
std::unique_ptr<TensorQuantizer> make_tensor_quantizer_on() {
  return std::make_unique<TensorQuantizerOn<Exec>>();
}

}  // namespace kformer::drivers
