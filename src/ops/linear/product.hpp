// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/matmul.hpp"
#include "kformer/ops/linear.hpp"

/// \file
/// The three products of the linear map in the one form that every kernel takes. Each factor and the result
/// have unit stride along one of their two extents.

namespace kformer::Impl {

/// y = scale · x Wᵀ + (bias or residual).
template <class T>
MatrixProduct<T, T> product(const LinearForward& p) {
  const auto x = p.x.as<const T, 2>(), weight = p.weight.as<const T, 2>();
  const auto y = p.y.as<T, 2>();
  const TensorRef& addend = p.bias.present() ? p.bias : p.residual;
  return {.rows = y.extent[0],
          .cols = y.extent[1],
          .inner = x.extent[1],
          .left = {x.data, x.stride[0], 1},
          .right = {weight.data, weight.stride[0], 1},
          .result = y.data,
          .row_stride = y.stride[0],
          .addend = static_cast<const T*>(addend.data),
          .addend_row_stride = p.bias.present() ? 0 : p.residual.stride[0],
          .alpha = static_cast<compute_t<T>>(p.options.scale)};
}

/// dx = scale · dy W.
template <class T>
MatrixProduct<T, T> product(const LinearBackwardInput& p) {
  const auto dy = p.dy.as<const T, 2>(), weight = p.weight.as<const T, 2>();
  const auto dx = p.dx.as<T, 2>();
  return {.rows = dx.extent[0],
          .cols = dx.extent[1],
          .inner = dy.extent[1],
          .left = {dy.data, dy.stride[0], 1},
          .right = {weight.data, 1, weight.stride[0]},
          .result = dx.data,
          .row_stride = dx.stride[0],
          .alpha = static_cast<compute_t<T>>(p.options.scale)};
}

/// dweight = scale · dyᵀ x + dweight.
template <class T>
MatrixProduct<T, compute_t<T>> product(const LinearBackwardWeight& p) {
  const auto dy = p.dy.as<const T, 2>(), x = p.x.as<const T, 2>();
  const auto dweight = p.dweight.as<compute_t<T>, 2>();
  return {.rows = dweight.extent[0],
          .cols = dweight.extent[1],
          .inner = x.extent[0],
          .left = {dy.data, 1, dy.stride[0]},
          .right = {x.data, 1, x.stride[0]},
          .result = dweight.data,
          .row_stride = dweight.stride[0],
          .addend = dweight.data,
          .addend_row_stride = dweight.stride[0],
          .alpha = static_cast<compute_t<T>>(p.options.scale)};
}

inline DType storage_type(const LinearForward& p) { return p.x.dtype; }
inline DType storage_type(const LinearBackwardInput& p) { return p.dy.dtype; }
inline DType storage_type(const LinearBackwardWeight& p) { return p.x.dtype; }

/// Calls `f` with the product of `p` in its storage type.
template <class P, class F>
decltype(auto) with_product(const P& p, F&& f) {
  return dispatch_dtype(storage_type(p),
                        [&]<class T>(std::type_identity<T>) -> decltype(auto) { return f(product<T>(p)); });
}

/// `kformer::linear_forward[kernel]`.
template <class P>
std::string label(const char* kernel) {
  std::string text = "kformer::";
  return text.append(P::function).append("[").append(kernel).append("]");
}

}  // namespace kformer::Impl
