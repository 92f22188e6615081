// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>

#include "kformer/model/layer_adapters.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/lora.hpp"
#include "model/adapter_terms.hpp"
#include "model/adapters/dropout.hpp"
#include "model/adapters/low_rank.hpp"
#include "model/adapters/magnitudes.hpp"
#include "model/split_map.hpp"
#include "model/tools/module_tools.hpp"

/// \file
/// A linear map of a layer that learns itself, or whose adapters do.

namespace kformer::Impl {

/// What the adapters of a map lose of x.
template <class Exec, class T>
struct MapDropout {
  double probability = 0;  ///< 0: nothing
  DropoutDraw draw;
  std::int64_t layer = 0;
  Projection first{};                                     ///< of the map
  ContextSlice slice{};                                   ///< of tokens that ranks divide
  std::size_t first_column = 0;                           ///< of x, among those of all ranks
  BlockMatrix<typename Exec::memory_space, T> dropped{};  ///< (rows, in), workspace
  std::int64_t rows = 1, tokens = 1;                      ///< of a sequence: those computed, and all

  double factor() const { return 1 / (1 - probability); }
  DropoutMask mask(std::size_t part) const {
    return {probability, draw,         layer, static_cast<Projection>(static_cast<std::size_t>(first) + part),
            slice,       first_column, rows,  tokens};
  }
};

/// The elements of a vector for all columns of y that belong to one part.
template <class V, class B>
auto rows_of_part(const V& vector, const LoraPart<B>& part) {
  const auto column = static_cast<std::size_t>(part.column);
  return Kokkos::subview(vector, std::pair(column, column + part.b.extent(0)));
}

/// The magnitudes of a map's rows; without any, all is empty.
template <class Exec, class T>
struct MapMagnitudes {
  using Memory = typename Exec::memory_space;
  BlockVector<Memory, compute_t<T>> norm{};  ///< (out): ‖W + s B A‖ of each row
  BlockVector<Memory, compute_t<T>> gain{};  ///< (out): m/norm, and 1 for rows without an adapter
  BlockMatrix<Memory, T> product{};    ///< (rows, out), workspace: of the map without gain, or of dy with it
  Collectives<Exec>* ranks = nullptr;  ///< that have other columns of the weight, or null

  bool any() const { return norm.extent(0) > 0; }
};

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
  MapDropout<Exec, T> dropout;
  MapMagnitudes<Exec, T> magnitudes;
  const std::vector<ProjectionWeight<Memory, T>>&
      split;  ///< in place of `weight`, where a matrix stays quantised

  /// y = x Wᵀ [+ bias].
  void forward(const Exec& exec, const ConstMatrix& x, const BlockVector<Memory, T>& bias,
               const Matrix& y) const {
    if (scales()) {
      forward_without_gain(exec, x, y);
      if (is_given(bias))
        scale_and_add_bias(exec, bias, magnitudes.gain, y);
      else
        scale_columns(exec, y, magnitudes.gain, y);
    } else if (!split.empty()) {
      matrices().forward(exec, tensor_ref(x), is_given(bias) ? tensor_ref(rows_of_bias(bias, y)) : TensorRef{},
                         tensor_ref(y));
    } else if (fuses()) {
      lora_affine(exec, x, weight, bias, adapter, xa, y, {batch_invariant});
    } else {
      affine(exec, x, weight, bias, y, workspace, {.batch_invariant = batch_invariant});
    }
    if (drops()) add_dropped_adapters(exec, x, y);
  }

  /// y = residual + x Wᵀ.
  void residual_forward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& residual,
                        const Matrix& y) const {
    if (scales()) {
      forward_without_gain(exec, x, y);
      add_scaled_columns(exec, residual, y, magnitudes.gain, y);
    } else if (!split.empty()) {
      matrices().forward(exec, tensor_ref(x), tensor_ref(residual), tensor_ref(y));
    } else if (fuses()) {
      lora_residual_forward(exec,
                            LoraResidualForwardOperands{.x = x,
                                                        .weight = weight,
                                                        .residual = residual,
                                                        .a = adapter.a,
                                                        .parts = adapter.parts,
                                                        .xa = xa,
                                                        .y = y},
                            {batch_invariant});
    } else {
      linear_residual_forward(exec, x, weight, residual, y, {.batch_invariant = batch_invariant}, workspace);
    }
    if (drops()) add_dropped_adapters(exec, x, y);
  }

  /// xa alone, with the bits of `forward`.
  void restore(const Exec& exec, const ConstMatrix& x) const {
    if (drops()) return reduce_dropped(exec, x);
    if (!split.empty()) matrices().restore(exec, tensor_ref(x));
    if (!split.empty() || !adapted) return;
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

  /// W += s B A and B = 0 for every adapter; with magnitudes W = m/‖W + s B A‖ ⊙ (W + s B A), and m the norms of its rows.
  void merge(const Exec& exec) const {
    const char* label = "kformer::DecoderLayer::merge_adapters";
    if (magnitudes.any()) update_gains(exec);
    for_parts(adapter, [&](const auto& part, std::size_t, const auto& ranks) {
      const auto w = rows_of(weight, columns_of(part)), a = rows_of(adapter.a, ranks);
      if (magnitudes.any())
        add_low_rank(label, exec, w, part.b, a, part.scale, rows_of_part(magnitudes.gain, part));
      else
        add_low_rank(label, exec, w, part.b, a, part.scale);
      Kokkos::deep_copy(exec, part.b, T(C(0)));
    });
    if (magnitudes.any()) reset_magnitudes(exec);
  }

  /// m = ‖W + s B A‖ of every row.
  void reset_magnitudes(const Exec& exec) const {
    for_parts(adapter, [&](const auto& part, std::size_t i, const auto& ranks) {
      measure_rows(exec, part, i, ranks);
      set_magnitudes("kformer::DecoderLayer::reset_magnitudes", exec, rows_of_part(magnitudes.norm, part),
                     rows_of_part(adapter.magnitude, part));
    });
  }

  /// The gains of weights, adapters and magnitudes as they are now.
  void update_gains(const Exec& exec) const {
    Kokkos::deep_copy(exec, magnitudes.gain, C(1));
    for_parts(adapter, [&](const auto& part, std::size_t i, const auto& ranks) {
      measure_rows(exec, part, i, ranks);
      row_gains("kformer::DecoderLayer::gains", exec, rows_of_part(adapter.magnitude, part),
                rows_of_part(magnitudes.norm, part), rows_of_part(magnitudes.gain, part));
    });
  }

  /// The gradient of x, and those of the weight or of the adapters.
  void backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy, const Matrix& dx) const {
    backward_input(exec, dy, dx);
    backward_weight(exec, x, dy);
  }

  /// The gradient of x alone, and dxa.
  void backward_input(const Exec& exec, const ConstMatrix& dy, const Matrix& dx) const {
    if (!adapted)
      linear_backward_input(exec, weight, dy, dx, {}, workspace);
    else if (drops())
      dropped_backward_input(exec, dy, dx);
    else
      backward_input_without_gain(exec, with_gain(exec, dy), dx);
  }

  /// The gradients of the weight or of the adapters alone, of which those of A need dxa.
  void backward_weight(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy) const {
    if (!adapted) return linear_backward_weight(exec, x, dy, dweight, {}, workspace);
    if (drops()) return dropped_backward_weight(exec, x, dy);
    if (magnitudes.any()) {
      forward_without_gain(exec, x, magnitudes.product);
      for_parts(adapter, [&](const auto& part, std::size_t i, const auto&) {
        const auto columns = [&](const auto& m) { return Kokkos::subview(m, Kokkos::ALL, columns_of(part)); };
        magnitude_gradient(exec, columns(dy), columns(magnitudes.product), rows_of_part(magnitudes.norm, part),
                           rows_of_part(gradient.magnitude, gradient.parts[i]));
      });
    }
    const ConstMatrix d_product = with_gain(exec, dy);
    linear_backward_weight(exec, x, dxa, gradient.a, {}, workspace);
    for_parts(gradient, [&](const auto& part, std::size_t, const auto& ranks) {
      linear_backward_weight(exec, Kokkos::subview(xa, Kokkos::ALL, ranks),
                             Kokkos::subview(d_product, Kokkos::ALL, columns_of(part)), part.b, {}, workspace);
    });
  }

  // y = x Wᵀ + xa Bᵀ.
  void forward_without_gain(const Exec& exec, const ConstMatrix& x, const Matrix& y) const {
    if (!split.empty()) return matrices().forward(exec, tensor_ref(x), {}, tensor_ref(y));
    lora_forward(
        exec,
        LoraForwardOperands{.x = x, .weight = weight, .a = adapter.a, .parts = adapter.parts, .xa = xa, .y = y},
        {batch_invariant});
  }

  void backward_input_without_gain(const Exec& exec, const ConstMatrix& dy, const Matrix& dx) const {
    if (split.empty())
      lora_backward_input(
          exec, LoraBackwardInputOperands{
                    .weight = weight, .a = adapter.a, .parts = adapter.parts, .dy = dy, .dxa = dxa, .dx = dx});
    else
      matrices().backward_input(exec, tensor_ref(dy), tensor_ref(dx));
  }

  // gain ⊙ dy: with magnitudes in the array of the product.
  ConstMatrix with_gain(const Exec& exec, const ConstMatrix& dy) const {
    if (!magnitudes.any()) return dy;
    scale_columns(exec, dy, magnitudes.gain, magnitudes.product);
    return magnitudes.product;
  }

  bool drops() const { return adapted && dropout.probability > 0; }
  // Whether the terms of the adapters are added inside the product.
  bool fuses() const { return adapted && !drops(); }
  // Whether gains multiply the product with these terms.
  bool scales() const { return fuses() && magnitudes.any(); }

  using Range = std::pair<std::size_t, std::size_t>;
  static Matrix rows_of(const Matrix& m, const Range& range) { return Kokkos::subview(m, range, Kokkos::ALL); }

  static constexpr const char* norms_label = "kformer::DecoderLayer::norms_of_rows";

  void measure_rows(const Exec& exec, const LoraPart<Matrix>& part, std::size_t i, const Range& ranks) const {
    const auto measure = [&](const auto& w) {
      row_norms(norms_label, exec, w, part.b, rows_of(adapter.a, ranks), part.scale,
                rows_of_part(magnitudes.norm, part));
    };
    if (split.empty())
      measure(rows_of(weight, columns_of(part)));
    else if (!split[i].format)
      measure(split[i].dense);
    else
      quantized_row_norms(norms_label, exec, split[i].quantized(), part.b, rows_of(adapter.a, ranks),
                          part.scale, rows_of_part(magnitudes.norm, part));
    if (magnitudes.ranks) join_norms(exec, *magnitudes.ranks, rows_of_part(magnitudes.norm, part));
  }

  // xa_p = s/(1 − p) (mask_p ⊙ x) A_pᵀ.
  void reduce_dropped(const Exec& exec, const ConstMatrix& x) const {
    for_parts(adapter, [&](const auto& part, std::size_t i, const auto& ranks) {
      drop(exec, dropout.mask(i), x, dropout.dropped);
      linear_forward(exec, dropout.dropped, Kokkos::subview(adapter.a, ranks, Kokkos::ALL),
                     Kokkos::subview(xa, Kokkos::ALL, ranks),
                     {.scale = part.scale * dropout.factor(), .batch_invariant = batch_invariant}, workspace);
    });
  }

  // drop_p(x) W_pᵀ, in its columns of the product.
  Matrix dropped_product(const Exec& exec, const ConstMatrix& x, const LoraPart<Matrix>& part,
                         std::size_t i) const {
    const Matrix to = Kokkos::subview(magnitudes.product, Kokkos::ALL, columns_of(part));
    const LinearOptions options{.scale = dropout.factor(), .batch_invariant = batch_invariant};
    drop(exec, dropout.mask(i), x, dropout.dropped);
    if (split.empty())
      linear_forward(exec, dropout.dropped, rows_of(weight, columns_of(part)), to, options, workspace);
    else
      matrices().forward_one(exec, i, tensor_ref(dropout.dropped), tensor_ref(to), options);
    return to;
  }

  // y += xa Bᵀ, and with magnitudes y += (gain − 1) ⊙ drop_p(x) W_pᵀ + gain ⊙ xa_p B_pᵀ.
  void add_dropped_adapters(const Exec& exec, const ConstMatrix& x, const Matrix& y) const {
    reduce_dropped(exec, x);
    if (!magnitudes.any())
      return add_adapter_terms(exec, xa, adapter, y, {.batch_invariant = batch_invariant}, workspace);
    for_parts(adapter, [&](const auto& part, std::size_t i, const auto& ranks) {
      const Matrix to = Kokkos::subview(y, Kokkos::ALL, columns_of(part)),
                   xa_part = Kokkos::subview(xa, Kokkos::ALL, ranks);
      const auto gain = rows_of_part(magnitudes.gain, part);
      const Matrix product = dropped_product(exec, x, part, i);
      add_scaled_columns(exec, to, product, GainLessOne{gain}, to);
      linear_forward(exec, xa_part, part.b, product, {.batch_invariant = batch_invariant}, workspace);
      add_scaled_columns(exec, to, product, gain, to);
    });
  }

  // The columns of gain ⊙ dy of one part, in those of the product.
  ConstMatrix part_with_gain(const Exec& exec, const LoraPart<Matrix>& part, const ConstMatrix& dy) const {
    const ConstMatrix dy_part = Kokkos::subview(dy, Kokkos::ALL, columns_of(part));
    if (!magnitudes.any()) return dy_part;
    const Matrix to = Kokkos::subview(magnitudes.product, Kokkos::ALL, columns_of(part));
    scale_columns(exec, dy_part, rows_of_part(magnitudes.gain, part), to);
    return to;
  }

  // dx += drop_p(((gain − 1) ⊙ dy_p) W_p).
  void add_gain_backward(const Exec& exec, const LoraPart<Matrix>& part, std::size_t i, const ConstMatrix& dy,
                         const Matrix& dx) const {
    const Matrix product = Kokkos::subview(magnitudes.product, Kokkos::ALL, columns_of(part));
    scale_columns(exec, ConstMatrix(Kokkos::subview(dy, Kokkos::ALL, columns_of(part))),
                  GainLessOne{rows_of_part(magnitudes.gain, part)}, product);
    const LinearOptions options{.scale = dropout.factor()};
    if (split.empty())
      linear_backward_input(exec, rows_of(weight, columns_of(part)), product, dropout.dropped, options,
                            workspace);
    else
      matrices().backward_input_one(exec, i, tensor_ref(product), tensor_ref(dropout.dropped), options);
    add_dropped(exec, dropout.mask(i), dropout.dropped, dx);
  }

  // dm_p of the products that forward scaled.
  void dropped_magnitude_gradient(const Exec& exec, const ConstMatrix& x, const LoraPart<Matrix>& part,
                                  std::size_t i, const ConstMatrix& xa_part, const ConstMatrix& dy) const {
    const Matrix product = dropped_product(exec, x, part, i);
    linear_residual_forward(exec, xa_part, part.b, product, product, {.batch_invariant = batch_invariant},
                            workspace);
    magnitude_gradient(exec, Kokkos::subview(dy, Kokkos::ALL, columns_of(part)), product,
                       rows_of_part(magnitudes.norm, part),
                       rows_of_part(gradient.magnitude, gradient.parts[i]));
  }

  // dxa_p = s/(1 − p) dy_p B_p and dx = dy W + mask_p ⊙ (dxa_p A_p).
  void dropped_backward_input(const Exec& exec, const ConstMatrix& dy, const Matrix& dx) const {
    if (split.empty())
      linear_backward_input(exec, weight, dy, dx, {}, workspace);
    else
      matrices().backward_input(exec, tensor_ref(dy), tensor_ref(dx));
    for_parts(adapter, [&](const auto& part, std::size_t i, const auto& ranks) {
      if (magnitudes.any()) add_gain_backward(exec, part, i, dy, dx);
      const Matrix dxa_part = Kokkos::subview(dxa, Kokkos::ALL, ranks);
      linear_backward_input(exec, part.b, part_with_gain(exec, part, dy), dxa_part,
                            {.scale = part.scale * dropout.factor()}, workspace);
      linear_backward_input(exec, rows_of(adapter.a, ranks), dxa_part, dropout.dropped, {}, workspace);
      add_dropped(exec, dropout.mask(i), dropout.dropped, dx);
    });
  }

  // dA_p and dB_p, and dm_p.
  void dropped_backward_weight(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy) const {
    for_parts(adapter, [&](const auto& part, std::size_t i, const auto& ranks) {
      const ConstMatrix xa_part = Kokkos::subview(xa, Kokkos::ALL, ranks);
      if (magnitudes.any()) dropped_magnitude_gradient(exec, x, part, i, xa_part, dy);
      linear_backward_weight(exec, xa_part, part_with_gain(exec, part, dy), gradient.parts[i].b, {}, workspace);
      drop(exec, dropout.mask(i), x, dropout.dropped);
      linear_backward_weight(exec, dropout.dropped, Kokkos::subview(dxa, Kokkos::ALL, ranks),
                             Kokkos::subview(gradient.a, ranks, Kokkos::ALL), {}, workspace);
    });
  }

  SplitMap<Exec, T, count> matrices() const {
    std::array<SplitMatrix, count> all;
    std::ranges::transform(split, all.begin(), [](const auto& w) {
      return w.format ? SplitMatrix{{}, w.quantized()} : SplitMatrix{tensor_ref(w.dense), {}};
    });
    return {all, adapter, fuses(), tensor_ref(xa), tensor_ref(dxa), workspace, batch_invariant};
  }
};

}  // namespace kformer::Impl
