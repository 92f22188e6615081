// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/layer_adapters.hpp"
#include "kformer/model/weight_matrix.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/lora.hpp"

/// \file
/// A linear map of a decoder: a weight in any format, and the adapters of its projections.

namespace kformer::Impl {

template <class Exec, Scalar T, std::size_t count>
struct DecoderMap {
  using Memory = typename Exec::memory_space;
  using Matrix = BlockMatrix<Memory, T>;

  const WeightMatrix<Memory, T>& weight;
  const AdapterMatrices<Memory, T, count>& adapter;
  Matrix xa;  ///< (rows, Σ ranks), overwritten
  QuantizedLinearOptions options;
  Workspace workspace;

  /// Whether any of its projections has an adapter.
  bool adapted() const { return adapter.a.extent(0) > 0; }
  LoraOptions lora_options() const { return {options.batch_invariant}; }

  /// y = x Wᵀ [+ bias], with the terms of the adapters.
  template <class B>
  void forward(const Exec& exec, const Matrix& x, const B& bias, const Matrix& y) const {
    if (adapted() && weight.is_dense()) {
      if (bias.extent(0) > 0)
        lora_bias_forward(exec,
                          LoraBiasForwardOperands{.x = x,
                                                  .weight = weight.dense(),
                                                  .bias = bias,
                                                  .a = adapter.a,
                                                  .parts = adapter.parts,
                                                  .xa = xa,
                                                  .y = y},
                          lora_options());
      else
        lora_forward(
            exec,
            LoraForwardOperands{
                .x = x, .weight = weight.dense(), .a = adapter.a, .parts = adapter.parts, .xa = xa, .y = y},
            lora_options());
      return;
    }
    if (bias.extent(0) == 0)
      weight.forward(exec, x, y, options, workspace);
    else if (weight.is_dense())
      linear_bias_forward(exec, x, weight.dense(), bias, y, {.batch_invariant = options.batch_invariant},
                          workspace);
    else  // the bias is a residual that is the same for all rows
      weight.residual_forward(exec, x,
                              Matrix(bias.data(), Kokkos::LayoutStride(y.extent(0), 0, y.extent(1), 1)), y,
                              options, workspace);
  }

  /// y = residual + x Wᵀ, with the terms of the adapters; the residual may be y.
  void residual_forward(const Exec& exec, const Matrix& x, const Matrix& residual, const Matrix& y) const {
    if (adapted() && weight.is_dense())
      lora_residual_forward(exec,
                            LoraResidualForwardOperands{.x = x,
                                                        .weight = weight.dense(),
                                                        .residual = residual,
                                                        .a = adapter.a,
                                                        .parts = adapter.parts,
                                                        .xa = xa,
                                                        .y = y},
                            lora_options());
    else
      weight.residual_forward(exec, x, residual, y, options, workspace);
  }
};

}  // namespace kformer::Impl
