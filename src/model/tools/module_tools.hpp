// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>

#include "core/overlap.hpp"
#include "kformer/core/operands.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/ops/linear.hpp"

/// \file
/// What modules on the caller's weights share.

namespace kformer::Impl {

/// Requires that each of these has these extents.
/// \throws DimensionMismatch naming the module and the View
inline void require_views(const char* function, std::initializer_list<Operand> views,
                          std::initializer_list<std::int64_t> extents) {
  for (const auto& [name, ref] : views) {
    TensorRef expected = ref;
    int r = 0;
    for (const std::int64_t extent : extents) expected.extent[r++] = extent;
    Operands(function, {{name, ref}})
        .require_extents(ref.has_extents(extents), Operands(function, {{name, expected}}).describe())
        .require_unit_stride();
  }
}

/// Requires that a View has these extents.
/// \throws DimensionMismatch naming the module and the View
template <class V>
void require_view(const char* function, const char* name, const V& view,
                  std::initializer_list<std::int64_t> extents) {
  require_views(function, {{name, tensor_ref(view)}}, extents);
}

/// Requires memory behind each of these that has elements.
/// \throws DimensionMismatch naming the module and the View
inline void require_addresses(const char* function, std::initializer_list<Operand> views) {
  for (const Operand& view : views) Operands(function, {view}).require_addresses();
}

/// The extents and the memory of operands. Modules launch several parts: what a part has accumulated cannot be taken
/// back if the next one finds that a View has no memory.
/// \throws DimensionMismatch naming the module and the View
inline void require_arrays(const char* function, std::initializer_list<Operand> views,
                           std::initializer_list<std::int64_t> extents) {
  require_views(function, views, extents);
  require_addresses(function, views);
}

/// Requires that the output of a forward shares no memory with what it reads. In training backward reads the inputs
/// again; in inference the output may be one of them itself. `context` may be absent. All must have memory.
/// \throws DimensionMismatch
template <class X, class Y>
void require_output(const char* function, LayerMode mode, const X& x, const TensorRef& context, const Y& y) {
  require_addresses(function, {{"x", tensor_ref(x)}, {"context", context}, {"y", tensor_ref(y)}});
  const Operands all(function, {{"x", tensor_ref(x)}, {"context", context}, {"y", tensor_ref(y)}});
  if (mode == LayerMode::training)
    all.require_disjoint("y");
  else
    all.require_disjoint("y", {"x", "context"});
}

/// Requires that each View that is written shares no memory with the others, nor with one that is read, and that all have
/// memory.
/// \throws DimensionMismatch naming the module and both
inline void require_separate(const char* function, std::initializer_list<Operand> written,
                             std::initializer_list<Operand> read) {
  for (const auto& views : {written, read}) require_addresses(function, views);
  for (const Operand& out : written)
    for (const auto& others : {written, read})
      for (const Operand& other : others)
        if (&out != &other && overlap(out.ref, other.ref))
          Operands(function, {out, other}).require_disjoint(out.role);
}

/// Whether a bias was given. One without an address was: the product refuses it.
template <class V>
bool is_given(const V& bias) {
  return bias.extent(0) > 0;
}

/// y = x Wᵀ, plus the bias if it was given.
template <class Exec, class X, class W, class B, class Y>
void affine(const Exec& exec, const X& x, const W& weight, const B& bias, const Y& y,
            const Workspace& workspace, const LinearOptions& options = {}) {
  if (is_given(bias))
    linear_bias_forward(exec, x, weight, bias, y, options, workspace);
  else
    linear_forward(exec, x, weight, y, options, workspace);
}

/// The gradients of `affine` with respect to weight and bias.
template <class Exec, class X, class DY, class DW, class DB>
void affine_gradients(const Exec& exec, const X& x, const DY& dy, const DW& dweight, const DB& dbias,
                      const Workspace& workspace) {
  linear_backward_weight(exec, x, dy, dweight, {}, workspace);
  if (is_given(dbias)) linear_backward_bias(exec, dy, dbias);
}

/// y += a.
template <class T, class Exec>
void add(const char* label, const Exec& exec, const BlockMatrix<typename Exec::memory_space, T>& y,
         const BlockMatrix<typename Exec::memory_space, const T>& a) {
  using C = compute_t<T>;
  const std::size_t columns = y.extent(1);
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<Exec>(exec, 0, y.extent(0) * columns), KOKKOS_LAMBDA(std::size_t i) {
        const std::size_t r = i / columns, c = i % columns;
        y(r, c) = T(static_cast<C>(y(r, c)) + static_cast<C>(a(r, c)));
      });
}

}  // namespace kformer::Impl
