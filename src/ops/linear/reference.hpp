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

/// y = scale · x Wᵀ [+ bias] [+ residual]; `bias` and `residual` may be absent.
template <class Real, class Store>
HostTensor<Real> linear_forward(const HostTensor<Real>& x_, const HostTensor<Real>& weight_,
                                const HostTensor<Real>& bias, const HostTensor<Real>& residual_,
                                Real scale = 1) {
  const MatricesOf x{x_}, weight{weight_};
  HostTensor<Real> result = matrices(x_, x.rows, weight.rows);
  const MatricesOf y{result};
  for (std::int64_t b = 0; b < y.count; ++b)
    for (std::int64_t r = 0; r < y.rows; ++r)
      for (std::int64_t o = 0; o < y.cols; ++o) {
        Real sum = 0;
        for (std::int64_t i = 0; i < x.cols; ++i) sum += x(b, r, i) * weight(b, o, i);
        sum = stored<Store>(scale * sum);
        if (bias.present()) sum = stored<Store>(sum + bias(o));
        if (residual_.present()) sum = stored<Store>(MatricesOf{residual_}(b, r, o) + sum);
        y(b, r, o) = sum;
      }
  return result;
}

/// dx = scale · dy W.
template <class Real, class Store>
HostTensor<Real> linear_backward_input(const HostTensor<Real>& weight_, const HostTensor<Real>& dy_,
                                       Real scale = 1) {
  const MatricesOf weight{weight_}, dy{dy_};
  HostTensor<Real> result = matrices(dy_, dy.rows, weight.cols);
  const MatricesOf dx{result};
  for (std::int64_t b = 0; b < dx.count; ++b)
    for (std::int64_t r = 0; r < dx.rows; ++r)
      for (std::int64_t i = 0; i < dx.cols; ++i) {
        Real sum = 0;
        for (std::int64_t o = 0; o < dy.cols; ++o) sum += dy(b, r, o) * weight(b, o, i);
        dx(b, r, i) = stored<Store>(scale * sum);
      }
  return result;
}

/// dweight = scale · dyᵀ x, kept in the type of arithmetic.
template <class Real>
HostTensor<Real> linear_backward_weight(const HostTensor<Real>& x_, const HostTensor<Real>& dy_,
                                        Real scale = 1) {
  const MatricesOf x{x_}, dy{dy_};
  HostTensor<Real> result = matrices(x_, dy.cols, x.cols);
  const MatricesOf dweight{result};
  for (std::int64_t b = 0; b < dweight.count; ++b)
    for (std::int64_t o = 0; o < dweight.rows; ++o)
      for (std::int64_t i = 0; i < dweight.cols; ++i) {
        for (std::int64_t r = 0; r < x.rows; ++r) dweight(b, o, i) += dy(b, r, o) * x(b, r, i);
        dweight(b, o, i) *= scale;
      }
  return result;
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
