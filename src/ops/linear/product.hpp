// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/matmul.hpp"
#include "kformer/ops/linear.hpp"

/// \file
/// The three products of the linear map in the one form that every kernel takes. Each factor and the result
/// have unit stride along one of their two extents.

namespace kformer::Impl {

/// The refusal of libraries, which choose the order of a sum by the extents of the product.
inline constexpr const char* not_batch_invariant =
    "it may sum a row in another order where there are more rows, but batch_invariant was requested";

/// Matrix 0 of a batch and the way to the next; one matrix alone is a batch of one.
template <class T>
struct Batch {
  T* data;
  std::int64_t rows, cols, row_stride, batch_stride, count;

  explicit Batch(const TensorRef& t)
      : data(static_cast<T*>(t.data)),
        rows(t.extent[t.rank - 2]),
        cols(t.extent[t.rank - 1]),
        row_stride(t.stride[t.rank - 2]),
        batch_stride(t.rank == 3 ? t.stride[0] : 0),
        count(t.rank == 3 ? t.extent[0] : 1) {}

  /// Summed along its rows, or across them.
  Factor<T> along() const {
    return {.data = data, .index_stride = row_stride, .inner_stride = 1, .batch_stride = batch_stride};
  }
  Factor<T> across() const {
    return {.data = data, .index_stride = 1, .inner_stride = row_stride, .batch_stride = batch_stride};
  }
};

/// result = alpha · left right.
template <class T, class O>
MatrixProduct<T, O> product_of(std::int64_t inner, const Factor<T>& left, const Factor<T>& right,
                               const Batch<O>& result, const LinearOptions& options) {
  return {.batches = result.count,
          .rows = result.rows,
          .cols = result.cols,
          .inner = inner,
          .left = left,
          .right = right,
          .result = result.data,
          .row_stride = result.row_stride,
          .batch_stride = result.batch_stride,
          .alpha = static_cast<compute_t<T>>(options.scale),
          .batch_invariant = options.batch_invariant};
}

template <class T, class O>
void add(MatrixProduct<T, O>& product, const Batch<O>& addend) {
  product.addend = addend.data;
  product.addend_row_stride = addend.row_stride;
  product.addend_batch_stride = addend.batch_stride;
}

/// y = scale · x Wᵀ + (bias or residual).
template <class T>
MatrixProduct<T, T> product(const LinearForward& p) {
  const Batch<T> x(p.x), weight(p.weight);
  auto product = product_of(x.cols, x.along(), weight.along(), Batch<T>(p.y), p.options);
  if (p.bias.present()) product.addend = static_cast<const T*>(p.bias.data);
  if (p.residual.present()) add(product, Batch<T>(p.residual));
  return product;
}

/// dx = scale · dy W.
template <class T>
MatrixProduct<T, T> product(const LinearBackwardInput& p) {
  const Batch<T> dy(p.dy), weight(p.weight);
  return product_of(dy.cols, dy.along(), weight.across(), Batch<T>(p.dx), p.options);
}

/// dweight = scale · dyᵀ x + dweight.
template <class T>
MatrixProduct<T, compute_t<T>> product(const LinearBackwardWeight& p) {
  const Batch<T> dy(p.dy), x(p.x);
  const Batch<compute_t<T>> dweight(p.dweight);
  auto product = product_of(x.rows, dy.across(), x.across(), dweight, p.options);
  add(product, dweight);
  return product;
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

/// Matrix `b` of a batch.
inline TensorRef matrix_of(TensorRef t, std::int64_t b) {
  if (t.rank != 3) return t;  // a bias, or nothing
  TensorRef matrix{
      static_cast<std::byte*>(t.data) + b * t.stride[0] * static_cast<std::int64_t>(size_of(t.dtype)), t.dtype,
      2};
  for (int r = 0; r < 2; ++r) matrix.extent[r] = t.extent[r + 1], matrix.stride[r] = t.stride[r + 1];
  return matrix;
}
inline LinearForward one_of(const LinearForward& p, std::int64_t b) {
  return {matrix_of(p.x, b),        matrix_of(p.weight, b), p.bias,
          matrix_of(p.residual, b), matrix_of(p.y, b),      p.options};
}
inline LinearBackwardInput one_of(const LinearBackwardInput& p, std::int64_t b) {
  return {matrix_of(p.weight, b), matrix_of(p.dy, b), matrix_of(p.dx, b), p.options};
}
inline LinearBackwardWeight one_of(const LinearBackwardWeight& p, std::int64_t b) {
  return {matrix_of(p.x, b), matrix_of(p.dy, b), matrix_of(p.dweight, b), p.options};
}

inline const TensorRef& result(const LinearForward& p) { return p.y; }
inline const TensorRef& result(const LinearBackwardInput& p) { return p.dx; }
inline const TensorRef& result(const LinearBackwardWeight& p) { return p.dweight; }

/// Calls `f` with the product of each matrix, for kernels that know no batches.
template <class P, class F>
void with_each_product(const P& p, F&& f) {
  const std::int64_t count = result(p).rank == 3 ? result(p).extent[0] : 1;
  for (std::int64_t b = 0; b < count; ++b) with_product(one_of(p, b), f);
}

}  // namespace kformer::Impl
