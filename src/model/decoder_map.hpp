// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>

#include "kformer/model/impl/decoder_ranks.hpp"
#include "kformer/model/layer_adapters.hpp"
#include "kformer/model/weight_matrix.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/lora.hpp"
#include "model/adapter_terms.hpp"
#include "model/adapters/magnitudes.hpp"
#include "model/split_map.hpp"

/// \file
/// A linear map of a decoder: a weight in any format, and the adapters of its projections.

namespace kformer::Impl {

/// xa(row, column) is kept where the row has chosen the adapter of the column, and else becomes 0. A row whose adapter does
/// not exist becomes NaN; −1 is none.
template <class Exec, class XA, class Of, class Chosen>
void keep_chosen(const Exec& exec, const XA& xa, const Of& of, const Chosen& chosen, std::int32_t adapters) {
  using T = typename XA::non_const_value_type;
  using C = compute_t<T>;
  const std::size_t columns = xa.extent(1);
  Kokkos::parallel_for(
      "kformer::LlamaDecoder::keep_chosen", Kokkos::RangePolicy<Exec>(exec, 0, xa.extent(0) * columns),
      KOKKOS_LAMBDA(std::size_t i) {
        const std::size_t row = i / columns, column = i % columns;
        const std::int32_t own = chosen(row);
        if (own < -1 || own >= adapters)
          xa(row, column) = T(Kokkos::Experimental::quiet_NaN_v<C>);
        else if (own != of(column))
          xa(row, column) = T(C(0));
      });
}

template <class Exec, Scalar T, std::size_t count>
struct DecoderMap {
  using Memory = typename Exec::memory_space;
  using Matrix = BlockMatrix<Memory, T>;
  using Integers = BlockVector<Memory, std::int32_t>;
  using Chosen = StridedVector<Memory, const std::int32_t>;

  const WeightMatrix<Memory, T>& weight;
  const AdapterMatrices<Memory, T, count>& adapter;
  Matrix xa;                               ///< (rows, Σ ranks), overwritten
  const std::vector<RankRun>& scales;      ///< of the ranks
  Integers of;                             ///< (Σ ranks): the adapter of each
  Chosen chosen;                           ///< (rows): the adapter of each; empty: the only one
  std::int32_t adapters;                   ///< how many there are
  BlockVector<Memory, compute_t<T>> gain;  ///< (adapters with magnitudes · out)
  Integers scaled_of;                      ///< (adapters): which of these each is, or −1
  QuantizedLinearOptions options;
  Workspace workspace;

  /// Whether any of its projections has an adapter.
  bool adapted() const { return adapter.a.extent(0) > 0; }
  LoraOptions lora_options() const { return {options.batch_invariant}; }

  /// y = x Wᵀ [+ bias], with the terms of the adapters.
  template <class B>
  void forward(const Exec& exec, const Matrix& x, const B& bias, const Matrix& y) const {
    if (!scales_rows()) {
      forward_without_gain(exec, x, bias, y);
    } else if (!chooses()) {
      forward_without_gain(exec, x, B(), y);
      if (is_given(bias))
        scale_and_add_bias(exec, bias, gain, y);
      else
        scale_columns(exec, y, gain, y);
    } else if (is_given(bias)) {
      bias_unless_scaled(exec, scaled_rows(), bias, y);
      residual_forward_without_gain(exec, x, y);
      scale_chosen_rows(exec, scaled_rows(), gain, BiasAddend<B>{bias}, y);
    } else {
      forward_without_gain(exec, x, bias, y);
      scale_chosen_rows(exec, scaled_rows(), gain, NoAddend(), y);
    }
  }

  /// y += x Wᵀ, with the terms of the adapters. `spare` is like y, and overwritten where rows are scaled.
  void residual_forward(const Exec& exec, const Matrix& x, const Matrix& y, const Matrix& spare) const {
    if (!scales_rows()) {
      residual_forward_without_gain(exec, x, y);
    } else if (!chooses()) {
      forward_without_gain(exec, x, BlockVector<Memory, T>(), spare);
      add_scaled_columns(exec, BlockMatrix<Memory, const T>(y), spare, gain, y);
    } else {
      set_aside_scaled(exec, scaled_rows(), y, spare);
      residual_forward_without_gain(exec, x, y);
      scale_chosen_rows(exec, scaled_rows(), gain, spare, y);
    }
  }

 private:
  bool scales_rows() const { return gain.extent(0) > 0; }
  bool chooses() const { return chosen.extent(0) > 0; }
  ScaledRows<Integers, Chosen> scaled_rows() const { return {scaled_of, chosen}; }
  // Whether one product adds the terms in registers.
  bool fused() const { return adapted() && weight.is_dense() && !chooses(); }
  // Whether the bits of a training are wanted, which has a product for each matrix if any is quantised.
  bool split() const {
    return options.batch_invariant && options.activations == Activations::full && !weight.is_dense() &&
           adapters > 0 && !chooses();
  }
  SplitMap<Exec, T, count> matrices() const {
    std::array<SplitMatrix, count> all;
    std::ranges::transform(weight.slots(), all.begin(),
                           [](const WeightSlot& w) { return SplitMatrix{w.dense, w.quantized}; });
    return {all, adapter, adapted(), tensor_ref(xa), {}, workspace, options.batch_invariant};
  }

  template <class B>
  void forward_without_gain(const Exec& exec, const Matrix& x, const B& bias, const Matrix& y) const {
    if (fused()) return lora_affine(exec, x, weight.dense(), bias, adapter, xa, y, lora_options());
    if (split())
      return matrices().forward(
          exec, tensor_ref(x), is_given(bias) ? tensor_ref(rows_of_bias(bias, y)) : TensorRef{}, tensor_ref(y));
    base_forward(exec, x, bias, y);
    add_terms(exec, x, y);
  }

  void residual_forward_without_gain(const Exec& exec, const Matrix& x, const Matrix& y) const {
    if (fused()) {
      lora_residual_forward(exec,
                            LoraResidualForwardOperands{.x = x,
                                                        .weight = weight.dense(),
                                                        .residual = y,
                                                        .a = adapter.a,
                                                        .parts = adapter.parts,
                                                        .xa = xa,
                                                        .y = y},
                            lora_options());
      return;
    }
    if (split()) return matrices().forward(exec, tensor_ref(x), tensor_ref(y), tensor_ref(y));
    weight.residual_forward(exec, x, y, y, options, workspace);
    add_terms(exec, x, y);
  }

  template <class B>
  void base_forward(const Exec& exec, const Matrix& x, const B& bias, const Matrix& y) const {
    if (!is_given(bias))
      weight.forward(exec, x, y, options, workspace);
    else if (weight.is_dense())
      linear_bias_forward(exec, x, weight.dense(), bias, y, {.batch_invariant = options.batch_invariant},
                          workspace);
    else
      weight.residual_forward(exec, x, rows_of_bias(bias, y), y, options, workspace);
  }

  // y += xa Bᵀ, with what each row has chosen in xa.
  void add_terms(const Exec& exec, const Matrix& x, const Matrix& y) const {
    if (!adapted()) return;
    for (const auto& [first, ranks, scale] : scales) {
      const std::pair run(first, first + ranks);
      linear_forward(exec, x, Kokkos::subview(adapter.a, run, Kokkos::ALL),
                     Kokkos::subview(xa, Kokkos::ALL, run),
                     {.scale = scale, .batch_invariant = options.batch_invariant}, workspace);
    }
    if (chooses()) keep_chosen(exec, xa, of, chosen, adapters);
    add_adapter_terms(exec, xa, adapter, y, {.batch_invariant = options.batch_invariant}, workspace);
  }
};

}  // namespace kformer::Impl
