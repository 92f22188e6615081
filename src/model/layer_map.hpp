// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/layer_adapters.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/lora.hpp"
#include "model/adapter_dropout.hpp"
#include "model/adapter_terms.hpp"
#include "model/low_rank.hpp"
#include "model/module_tools.hpp"
#include "model/split_map.hpp"

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
  BlockMatrix<typename Exec::memory_space, T> dropped{};  ///< (rows, in), workspace

  double factor() const { return 1 / (1 - probability); }
  DropoutMask mask(std::size_t part) const {
    return {probability, draw, layer, static_cast<Projection>(static_cast<std::size_t>(first) + part)};
  }
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
  const std::vector<ProjectionWeight<Memory, T>>&
      split;  ///< in place of `weight`, where a matrix stays quantised

  /// y = x Wᵀ [+ bias].
  void forward(const Exec& exec, const ConstMatrix& x, const BlockVector<Memory, T>& bias,
               const Matrix& y) const {
    if (!split.empty())
      matrices().forward(exec, tensor_ref(x), is_given(bias) ? tensor_ref(rows_of_bias(bias, y)) : TensorRef{},
                         tensor_ref(y));
    else if (!fuses())
      affine(exec, x, weight, bias, y, workspace, {.batch_invariant = batch_invariant});
    else
      lora_affine(exec, x, weight, bias, adapter, xa, y, {batch_invariant});
    if (drops()) add_dropped_adapters(exec, x, y);
  }

  /// y = residual + x Wᵀ.
  void residual_forward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& residual,
                        const Matrix& y) const {
    if (!split.empty())
      matrices().forward(exec, tensor_ref(x), tensor_ref(residual), tensor_ref(y));
    else if (fuses())
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

  /// W += s B A and B = 0 for every adapter.
  void merge(const Exec& exec) const {
    for_parts(adapter, [&](const auto& part, std::size_t, const auto& ranks) {
      add_low_rank("kformer::DecoderLayer::merge_adapters", exec,
                   Matrix(Kokkos::subview(weight, columns_of(part), Kokkos::ALL)), part.b,
                   Matrix(Kokkos::subview(adapter.a, ranks, Kokkos::ALL)), part.scale);
      Kokkos::deep_copy(exec, part.b, T(C(0)));
    });
  }

  /// The gradient of x, and those of the weight or of the adapters.
  void backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy, const Matrix& dx) const {
    if (!adapted) {
      linear_backward_weight(exec, x, dy, dweight, {}, workspace);
      linear_backward_input(exec, weight, dy, dx, {}, workspace);
      return;
    }
    if (drops()) return dropped_backward(exec, x, dy, dx);
    if (split.empty())
      lora_backward_input(
          exec, LoraBackwardInputOperands{
                    .weight = weight, .a = adapter.a, .parts = adapter.parts, .dy = dy, .dxa = dxa, .dx = dx});
    else
      matrices().backward_input(exec, tensor_ref(dy), tensor_ref(dx));
    linear_backward_weight(exec, x, dxa, gradient.a, {}, workspace);
    for_parts(gradient, [&](const auto& part, std::size_t, const auto& ranks) {
      linear_backward_weight(exec, Kokkos::subview(xa, Kokkos::ALL, ranks),
                             Kokkos::subview(dy, Kokkos::ALL, columns_of(part)), part.b, {}, workspace);
    });
  }

  bool drops() const { return adapted && dropout.probability > 0; }
  // Whether the terms of the adapters are added inside the product.
  bool fuses() const { return adapted && !drops(); }

  // xa_p = s/(1 − p) (mask_p ⊙ x) A_pᵀ.
  void reduce_dropped(const Exec& exec, const ConstMatrix& x) const {
    for_parts(adapter, [&](const auto& part, std::size_t i, const auto& ranks) {
      drop(exec, dropout.mask(i), x, dropout.dropped);
      linear_forward(exec, dropout.dropped, Kokkos::subview(adapter.a, ranks, Kokkos::ALL),
                     Kokkos::subview(xa, Kokkos::ALL, ranks), {.scale = part.scale * dropout.factor()},
                     workspace);
    });
  }

  // y += xa Bᵀ.
  void add_dropped_adapters(const Exec& exec, const ConstMatrix& x, const Matrix& y) const {
    reduce_dropped(exec, x);
    add_adapter_terms(exec, xa, adapter, y, {}, workspace);
  }

  // dxa_p = s/(1 − p) dy_p B_p and dx = dy W + mask_p ⊙ (dxa_p A_p); dA_p and dB_p.
  void dropped_backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy, const Matrix& dx) const {
    if (split.empty())
      linear_backward_input(exec, weight, dy, dx, {}, workspace);
    else
      matrices().backward_input(exec, tensor_ref(dy), tensor_ref(dx));
    for_parts(adapter, [&](const auto& part, std::size_t i, const auto& ranks) {
      const auto dy_part = Kokkos::subview(dy, Kokkos::ALL, columns_of(part));
      const auto dxa_part = Kokkos::subview(dxa, Kokkos::ALL, ranks);
      linear_backward_weight(exec, Kokkos::subview(xa, Kokkos::ALL, ranks), dy_part, gradient.parts[i].b, {},
                             workspace);
      linear_backward_input(exec, part.b, dy_part, dxa_part, {.scale = part.scale * dropout.factor()},
                            workspace);
      drop(exec, dropout.mask(i), x, dropout.dropped);
      linear_backward_weight(exec, dropout.dropped, dxa_part, Kokkos::subview(gradient.a, ranks, Kokkos::ALL),
                             {}, workspace);
      linear_backward_input(exec, Kokkos::subview(adapter.a, ranks, Kokkos::ALL), dxa_part, dropout.dropped, {},
                            workspace);
      add_dropped(exec, dropout.mask(i), dropout.dropped, dx);
    });
  }

  SplitMap<Exec, T, count> matrices() const {
    return {split, adapter, fuses(), tensor_ref(xa), tensor_ref(dxa), workspace, batch_invariant};
  }
};

}  // namespace kformer::Impl
