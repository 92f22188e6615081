// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/host_tensor.hpp"

/// \file
/// The linear map in textbook order: the oracle. See host_tensor.hpp for `Real` and `Store`.

namespace kformer::Impl::reference {

/// A matrix or a batch of matrices by batch, row and column.
template <class Tensor>
struct MatricesOf {
  Tensor& tensor;
  std::int64_t rows = tensor.extent(tensor.rank() - 2), cols = tensor.extent(tensor.rank() - 1),
               count = tensor.rank() == 3 ? tensor.extent(0) : 1;

  auto& operator()(std::int64_t batch, std::int64_t row, std::int64_t col) const {
    return tensor.values()[static_cast<std::size_t>((batch * rows + row) * cols + col)];
  }
};
template <class Tensor>
MatricesOf(Tensor&) -> MatricesOf<Tensor>;

/// As many matrices as in `like`, of other extents.
template <class Real>
HostTensor<Real> matrices(const HostTensor<Real>& like, std::int64_t rows, std::int64_t cols) {
  if (like.rank() == 2) return HostTensor<Real>({rows, cols});
  return HostTensor<Real>({like.extent(0), rows, cols});
}

/// result(b, row, col) = scale · Σ_i term(b, row, col, i) over `length` terms, rounded to `Store`.
template <class Store, class Real, class Term>
HostTensor<Real> sums(HostTensor<Real> result, std::int64_t length, Real scale, Term term) {
  const MatricesOf y{result};
  for (std::int64_t b = 0; b < y.count; ++b)
    for (std::int64_t row = 0; row < y.rows; ++row)
      for (std::int64_t col = 0; col < y.cols; ++col) {
        Real sum = 0;
        for (std::int64_t i = 0; i < length; ++i) sum += term(b, row, col, i);
        y(b, row, col) = stored<Store>(scale * sum);
      }
  return result;
}

/// y = scale · x Wᵀ [+ bias] [+ residual]; `bias` and `residual` may be absent.
template <class Real, class Store>
HostTensor<Real> linear_forward(const HostTensor<Real>& x, const HostTensor<Real>& weight,
                                const HostTensor<Real>& bias, const HostTensor<Real>& residual,
                                Real scale = 1) {
  const MatricesOf x_at{x}, weight_at{weight};
  HostTensor<Real> y =
      sums<Store>(matrices(x, x_at.rows, weight_at.rows), x_at.cols, scale,
                  [&](auto b, auto r, auto o, auto i) { return x_at(b, r, i) * weight_at(b, o, i); });
  for (std::size_t at = 0; at < y.values().size(); ++at) {
    Real& sum = y.values()[at];
    if (bias.present()) sum = stored<Store>(sum + bias.values()[at % bias.values().size()]);
    if (residual.present()) sum = stored<Store>(residual.values()[at] + sum);
  }
  return y;
}

/// dx = scale · dy W.
template <class Real, class Store>
HostTensor<Real> linear_backward_input(const HostTensor<Real>& weight, const HostTensor<Real>& dy,
                                       Real scale = 1) {
  const MatricesOf weight_at{weight}, dy_at{dy};
  return sums<Store>(matrices(dy, dy_at.rows, weight_at.cols), dy_at.cols, scale,
                     [&](auto b, auto r, auto i, auto o) { return dy_at(b, r, o) * weight_at(b, o, i); });
}

/// dweight = scale · dyᵀ x, kept in the type of arithmetic.
template <class Real>
HostTensor<Real> linear_backward_weight(const HostTensor<Real>& x, const HostTensor<Real>& dy, Real scale = 1) {
  const MatricesOf x_at{x}, dy_at{dy};
  return sums<Real>(matrices(x, dy_at.cols, x_at.cols), x_at.rows, scale,
                    [&](auto b, auto o, auto i, auto r) { return dy_at(b, r, o) * x_at(b, r, i); });
}

/// dbias = Σ_rows dy, kept in the type of arithmetic.
template <class Real>
HostTensor<Real> linear_backward_bias(const HostTensor<Real>& dy) {
  HostTensor<Real> dbias({dy.extent(1)});
  for (std::int64_t r = 0; r < dy.extent(0); ++r)
    for (std::int64_t o = 0; o < dy.extent(1); ++o) dbias(o) += dy(r, o);
  return dbias;
}

}  // namespace kformer::Impl::reference
