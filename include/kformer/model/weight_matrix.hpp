// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kformer/core/array_slice.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/model/weight_formats.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/quantized.hpp"

/// \file
/// Weight matrices of a model that only generates: dense, or quantised. The weights of any model as loading sees them.

namespace kformer {

/// A weight of a model, by the name it has in published checkpoints.
struct WeightSlot {
  std::string name;           ///< such as "model.layers.0.self_attn.q_proj.weight"
  TensorRef dense;            ///< where its elements go, T; absent if it stays quantised
  QuantizedOutput quantized;  ///< where its blocks go; without rows if it is dense
  ArraySlice slice{};         ///< of the published weight, where ranks divide it

  /// Whether it stays quantised.
  bool is_quantized() const { return !dense.present(); }
  /// Its rows (0) or columns (1).
  std::int64_t extent(int axis) const {
    if (!is_quantized()) return dense.extent[axis];
    return axis == 0 ? quantized.rows : quantized.cols;
  }
};

/// The weight of a linear map, (out, in): some published matrices one below the other, in as few pieces as
/// their formats allow. Neighbours of one format are one piece, and one product. In NF4 each is a piece of its own,
/// because its scales depend on all of its rows.
template <class MemorySpace, Scalar T>
class WeightMatrix {
 public:
  /// A piece: rows [first, first + rows) of the whole.
  struct Piece {
    std::int64_t first;                     ///< its first row
    std::int64_t rows;                      ///< its rows
    std::optional<QuantizedFormat> format;  ///< of its blocks; dense if there is none
    std::size_t offset = 0;                 ///< in the block of memory
    BlockMatrix<MemorySpace, T> dense{};    ///< type of its elements, if it has no quantised format
    QuantizedOutput quantized{};            ///< its blocks, if there is one
  };

  WeightMatrix() = default;
  /// \param parts   the published matrices in order
  /// \param prefix  of their names
  /// \param columns inputs
  /// \param formats those that stay quantised
  /// \param layout  layout of the memory block that will contain the matrix
  WeightMatrix(std::vector<Impl::ParameterRows> parts, const std::string& prefix, std::int64_t columns,
               const WeightFormats& formats, MemoryLayout& layout)
      : m_parts(std::move(parts)), m_columns(columns) {
    for (Impl::ParameterRows& part : m_parts) {
      part.name = prefix + part.name;
      const auto format = format_in(formats, part.name);
      const bool joins =
          !m_pieces.empty() && m_pieces.back().format == format && (!format || has_separate_rows(*format));
      if (!joins) m_pieces.push_back({part.first, 0, format});
      m_pieces.back().rows += part.count;
    }
    for (Piece& piece : m_pieces)
      piece.offset = piece.format ? layout.reserve<std::byte>(static_cast<std::int64_t>(
                                        quantized_bytes(*piece.format, piece.rows, columns)))
                                  : layout.reserve<T>(piece.rows * columns);
  }

  /// A dense matrix that something else owns.
  /// \param parts  the published matrices in order
  /// \param prefix of their names
  /// \param dense  (out, in), all of them
  WeightMatrix(std::vector<Impl::ParameterRows> parts, const std::string& prefix,
               const BlockMatrix<MemorySpace, T>& dense)
      : m_parts(std::move(parts)), m_columns(static_cast<std::int64_t>(dense.extent(1))) {
    for (Impl::ParameterRows& part : m_parts) part.name = prefix + part.name;
    m_pieces.push_back({0, static_cast<std::int64_t>(dense.extent(0)), std::nullopt, 0, dense, {}});
  }

  /// Matrices one by one, of which some are quantised and which something else owns.
  /// \param parts  the published matrices in order
  /// \param prefix of their names
  /// \param split  the same, with their memory
  WeightMatrix(std::vector<Impl::ParameterRows> parts, const std::string& prefix,
               const std::vector<ProjectionWeight<MemorySpace, T>>& split)
      : m_parts(std::move(parts)), m_columns(split.front().columns) {
    for (std::size_t i = 0; i < m_parts.size(); ++i) {
      m_parts[i].name = prefix + m_parts[i].name;
      const auto& w = split[i];
      m_pieces.push_back({m_parts[i].first, w.rows, w.format, 0, w.dense, {}});
      if (w.format) m_pieces.back().quantized = w.quantized();
    }
  }

  /// Takes its place in the block.
  void place(const MemoryBlock<MemorySpace>& block) {
    for (Piece& piece : m_pieces)
      if (piece.format)
        piece.quantized = {*piece.format, block.template at<std::byte>(piece.offset), piece.rows, m_columns};
      else
        piece.dense = Impl::matrix_in<T>(block, piece.offset, piece.rows, m_columns);
  }

  /// Where the published matrices are to be written.
  std::vector<WeightSlot> slots() const {
    std::vector<WeightSlot> all;
    for (const auto& [name, first, count] : m_parts) {
      const Piece& piece = piece_of(first);
      WeightSlot slot{name, {}, {}};
      if (piece.format) {
        slot.quantized = piece.quantized;
        slot.quantized.rows = count;
        if (slot.quantized.data)
          slot.quantized.data += (first - piece.first) * quantized_row_bytes(*piece.format, m_columns);
      } else {
        slot.dense = Impl::rows_of(tensor_ref(piece.dense), first - piece.first, count);
      }
      all.push_back(std::move(slot));
    }
    return all;
  }

  /// Its pieces, from the first row on.
  const std::vector<Piece>& pieces() const { return m_pieces; }

  /// Whether it is one dense array, as `dense` returns it.
  bool is_dense() const { return m_pieces.size() == 1 && !m_pieces[0].format; }
  /// That array.
  const BlockMatrix<MemorySpace, T>& dense() const { return m_pieces[0].dense; }

  /// Bytes of workspace that a product with `rows` rows needs.
  template <class Exec>
  std::size_t workspace_bytes(const Exec& exec, std::int64_t rows,
                              const QuantizedLinearOptions& options) const {
    std::size_t bytes = linear_forward_workspace_bytes(exec);
    for (const Piece& piece : m_pieces)
      if (piece.format)
        bytes =
            std::max(bytes, quantized_linear_forward_workspace_bytes<T>(exec, rows, piece.quantized, options));
    return bytes;
  }

  /// `y = x Wᵀ`, all as in `linear_forward`.
  template <class Exec, ViewOf<2> X, ViewOf<2> Y>
  void forward(const Exec& exec, const X& x, const Y& y, const QuantizedLinearOptions& options,
               const Workspace& workspace) const {
    for (const Piece& piece : m_pieces) {
      const auto part = columns_of(y, piece);
      if (piece.format)
        quantized_linear_forward(exec, x, piece.quantized, part, options, workspace);
      else
        linear_forward(exec, x, piece.dense, part, {.batch_invariant = options.batch_invariant}, workspace);
    }
  }

  /// `y = residual + x Wᵀ`, all as in `linear_residual_forward`; rows of the residual may be one and the same.
  template <class Exec, ViewOf<2> X, ViewOf<2> R, ViewOf<2> Y>
  void residual_forward(const Exec& exec, const X& x, const R& residual, const Y& y,
                        const QuantizedLinearOptions& options, const Workspace& workspace) const {
    for (const Piece& piece : m_pieces) {
      const auto part = columns_of(y, piece), added = columns_of(residual, piece);
      if (piece.format)
        quantized_linear_residual_forward(exec, x, piece.quantized, added, part, options, workspace);
      else
        linear_residual_forward(exec, x, piece.dense, added, part, {.batch_invariant = options.batch_invariant},
                                workspace);
    }
  }

 private:
  const Piece& piece_of(std::int64_t row) const {
    std::size_t i = 0;
    while (row >= m_pieces[i].first + m_pieces[i].rows) ++i;
    return m_pieces[i];
  }
  template <class V>
  static auto columns_of(const V& y, const Piece& piece) {
    return Kokkos::subview(y, Kokkos::ALL, std::pair(piece.first, piece.first + piece.rows));
  }

  std::vector<Impl::ParameterRows> m_parts;
  std::vector<Piece> m_pieces;
  std::int64_t m_columns = 0;
};

}  // namespace kformer
