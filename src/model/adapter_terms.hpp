// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <utility>

#include "kformer/model/layer_adapters.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/lora.hpp"
#include "model/tools/module_tools.hpp"

/// \file
/// The terms of adapters in a linear map, which layers and decoders share.

namespace kformer::Impl {

/// Calls f(part, index of it, its columns of xa, which are its rows of A) for every adapter.
template <class Adapter, class F>
void for_parts(const Adapter& adapter, const F& f) {
  std::size_t rank = 0;
  for (std::size_t i = 0; i < adapter.parts.size(); ++i) {
    const std::size_t end = rank + adapter.parts[i].b.extent(1);
    if (end > rank) f(adapter.parts[i], i, std::pair(rank, end));
    rank = end;
  }
}

/// The columns of y to which an adapter belongs.
template <class Part>
std::pair<std::size_t, std::size_t> columns_of(const Part& part) {
  const auto column = static_cast<std::size_t>(part.column);
  return {column, column + part.b.extent(0)};
}

/// y = x Wᵀ + xa Bᵀ, plus the bias if it was given, in one product.
template <class Exec, class X, class W, class B, class Adapter, class Y>
void lora_affine(const Exec& exec, const X& x, const W& weight, const B& bias, const Adapter& adapter,
                 const Y& xa, const Y& y, const LoraOptions& options) {
  if (is_given(bias))
    lora_bias_forward(
        exec,
        LoraBiasForwardOperands{
            .x = x, .weight = weight, .bias = bias, .a = adapter.a, .parts = adapter.parts, .xa = xa, .y = y},
        options);
  else
    lora_forward(
        exec,
        LoraForwardOperands{.x = x, .weight = weight, .a = adapter.a, .parts = adapter.parts, .xa = xa, .y = y},
        options);
}

/// y += xa Bᵀ.
template <class Exec, class Adapter, class Y>
void add_adapter_terms(const Exec& exec, const Y& xa, const Adapter& adapter, const Y& y,
                       const LinearOptions& options, const Workspace& workspace) {
  for_parts(adapter, [&](const auto& part, std::size_t, const auto& ranks) {
    const auto to = Kokkos::subview(y, Kokkos::ALL, columns_of(part));
    linear_residual_forward(exec, Kokkos::subview(xa, Kokkos::ALL, ranks), part.b, to, to, options, workspace);
  });
}

/// A bias as the rows of an addend to y: they are one and the same.
template <class Y, class B>
Y rows_of_bias(const B& bias, const Y& y) {
  return Y(bias.data(), Kokkos::LayoutStride(y.extent(0), 0, y.extent(1), 1));
}

}  // namespace kformer::Impl
