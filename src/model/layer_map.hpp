// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/layer_adapters.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/lora.hpp"
#include "model/low_rank.hpp"
#include "model/module_tools.hpp"

/// \file
/// A linear map of a layer that learns itself, or whose adapters do.

namespace kformer::Impl {

/// `dweight` is empty where adapters learn in place of the weight, and all that belongs to them where not.
template <class Exec, class T, std::size_t count>
struct LayerMap {
  using Memory = typename Exec::memory_space;
  using Matrix = BlockMatrix<Memory, T>;
  using ConstMatrix = BlockMatrix<Memory, const T>;
  using C = compute_t<T>;

  bool adapted;
  const Matrix& weight;
  const BlockMatrix<Memory, C>& dweight;
  const AdapterMatrices<Memory, T, count>& adapter;
  const AdapterMatrices<Memory, C, count>& gradient;
  Matrix xa, dxa;  ///< (rows, Σ ranks)
  Workspace workspace;
  bool batch_invariant;

  /// y = x Wᵀ [+ bias].
  void forward(const Exec& exec, const ConstMatrix& x, const BlockVector<Memory, T>& bias,
               const Matrix& y) const {
    if (!adapted)
      affine(exec, x, weight, bias, y, workspace, {.batch_invariant = batch_invariant});
    else if (is_given(bias))
      lora_bias_forward(
          exec,
          LoraBiasForwardOperands{
              .x = x, .weight = weight, .bias = bias, .a = adapter.a, .parts = adapter.parts, .xa = xa, .y = y},
          {batch_invariant});
    else
      lora_forward(exec,
                   LoraForwardOperands{
                       .x = x, .weight = weight, .a = adapter.a, .parts = adapter.parts, .xa = xa, .y = y},
                   {batch_invariant});
  }

  /// y = residual + x Wᵀ.
  void residual_forward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& residual,
                        const Matrix& y) const {
    if (adapted)
      lora_residual_forward(exec,
                            LoraResidualForwardOperands{.x = x,
                                                        .weight = weight,
                                                        .residual = residual,
                                                        .a = adapter.a,
                                                        .parts = adapter.parts,
                                                        .xa = xa,
                                                        .y = y},
                            {batch_invariant});
    else
      linear_residual_forward(exec, x, weight, residual, y, {.batch_invariant = batch_invariant}, workspace);
  }

  /// xa alone, with the bits of `forward`.
  void restore(const Exec& exec, const ConstMatrix& x) const {
    if (!adapted) return;
    const std::pair none(std::size_t(0), std::size_t(0));
    auto parts = adapter.parts;
    for (auto& part : parts) part = {Kokkos::subview(part.b, none, Kokkos::ALL), 0, part.scale};
    lora_forward(exec,
                 LoraForwardOperands{.x = x,
                                     .weight = Matrix(Kokkos::subview(weight, none, Kokkos::ALL)),
                                     .a = adapter.a,
                                     .parts = parts,
                                     .xa = xa,
                                     .y = Matrix(Kokkos::subview(xa, Kokkos::ALL, none))},
                 {batch_invariant});
  }

  /// W += s B A and B = 0 for every adapter.
  void merge(const Exec& exec) const {
    std::size_t row = 0;
    for (const auto& part : adapter.parts) {
      merge_part(exec, part, row);
      row += part.b.extent(1);
    }
  }

  /// The gradient of x, and those of the weight or of the adapters.
  void backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy, const Matrix& dx) const {
    if (!adapted) {
      linear_backward_weight(exec, x, dy, dweight, {}, workspace);
      linear_backward_input(exec, weight, dy, dx, {}, workspace);
      return;
    }
    lora_backward_input(
        exec, LoraBackwardInputOperands{
                  .weight = weight, .a = adapter.a, .parts = adapter.parts, .dy = dy, .dxa = dxa, .dx = dx});
    linear_backward_weight(exec, x, dxa, gradient.a, {}, workspace);
    std::size_t rank = 0;
    for (const auto& part : gradient.parts) {
      const auto column = static_cast<std::size_t>(part.column);
      linear_backward_weight(exec, Kokkos::subview(xa, Kokkos::ALL, std::pair(rank, rank + part.b.extent(1))),
                             Kokkos::subview(dy, Kokkos::ALL, std::pair(column, column + part.b.extent(0))),
                             part.b, {}, workspace);
      rank += part.b.extent(1);
    }
  }

  // `first`: the part's first row of A.
  void merge_part(const Exec& exec, const LoraPart<Matrix>& part, std::size_t first) const {
    const auto rows = [](const Matrix& m, std::size_t begin, std::size_t length) {
      return Matrix(Kokkos::subview(m, std::pair(begin, begin + length), Kokkos::ALL));
    };
    add_low_rank("kformer::DecoderLayer::merge_adapters", exec,
                 rows(weight, static_cast<std::size_t>(part.column), part.b.extent(0)), part.b,
                 rows(adapter.a, first, part.b.extent(1)), part.scale);
    Kokkos::deep_copy(exec, part.b, T(C(0)));
  }
};

}  // namespace kformer::Impl
