// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "ops/common/host_tensor.hpp"
#include "ops/quantized/reference_nf4.hpp"
#include "ops/quantized/rules.hpp"

/// \file
/// The values of quantised numbers: with them the reference of a quantised function is that of the plain one.

namespace kformer::Impl::reference {

/// One weight, as `MatrixBlocks::weight`; that one is compiled for devices, where `Real` may have no operators.
template <class Real, QuantizedFormat format>
Real weight(const MatrixBlocks<format>& blocks, std::int64_t row, std::int64_t col) {
  using Block = QuantizedBlock<format>;
  const std::uint8_t* block = blocks.block(row, col / Block::weights);
  const int code = Block::code(block, static_cast<int>(col % Block::weights));
  return static_cast<Real>(Block::scale(block)) * static_cast<Real>(code) +
         static_cast<Real>(Block::offset(block));
}

/// The weights, each as it would be stored as `Store`.
template <class Real, class Store>
HostTensor<Real> dequantize(const QuantizedMatrix& matrix) {
  if (matrix.format == QuantizedFormat::nf4)
    return dequantize_nf4<Real, Store>(reinterpret_cast<const std::uint8_t*>(matrix.data), matrix.rows,
                                       matrix.cols);
  HostTensor<Real> y({matrix.rows, matrix.cols});
  with_format(matrix.format, [&](auto format) {
    if constexpr (format() != QuantizedFormat::nf4) {
      const MatrixBlocks<format()> blocks(matrix);
      for (std::int64_t r = 0; r < matrix.rows; ++r)
        for (std::int64_t i = 0; i < matrix.cols; ++i) y(r, i) = stored<Store>(weight<Real>(blocks, r, i));
    }
  });
  return y;
}

/// t += scale · left right, or with `along` left rightᵀ; both may be absent.
template <class Real>
HostTensor<Real> with_terms(HostTensor<Real> t, const HostTensor<Real>& left, const HostTensor<Real>& right,
                            bool along, Real scale) {
  if (!left.present()) return t;
  for (std::int64_t r = 0; r < t.extent(0); ++r)
    for (std::int64_t c = 0; c < t.extent(1); ++c)
      for (std::int64_t k = 0; k < left.extent(1); ++k)
        t(r, c) += scale * left(r, k) * (along ? right(c, k) : right(k, c));
  return t;
}

/// The values of 8-bit activations: scales and codes in the arithmetic of C, their products in that of Real.
/// `group` neighbours share a scale, 0 for whole rows.
template <class C, class Real, class Store>
HostTensor<Real> int8_activations(const HostTensor<Real>& x, std::int64_t group) {
  const std::int64_t rows = x.extent(0), cols = x.extent(1);
  HostTensor<Real> y({rows, cols});
  if (group == 0) group = std::max<std::int64_t>(1, cols);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t first = 0; first < cols; first += group) {
      const std::int64_t end = std::min(cols, first + group);
      C greatest = 0;
      for (std::int64_t i = first; i < end; ++i)
        greatest = std::max(greatest, ActivationScale<C>::magnitude(static_cast<C>(x(r, i))));
      const ActivationScale<C> scale(greatest);
      for (std::int64_t i = first; i < end; ++i)
        y(r, i) = stored<Store>(static_cast<Real>(scale.scale) *
                                static_cast<Real>(scale.code(static_cast<C>(x(r, i)))));
    }
  return y;
}

}  // namespace kformer::Impl::reference
