// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/operands.hpp"

/// \file
/// Token embedding: rows of a table by their ids (Bengio et al., A Neural Probabilistic Language Model, JMLR 3
/// (2003), section 2).

namespace kformer {

namespace Impl {

struct EmbeddingForward {
  static constexpr const char* op = "embedding";
  static constexpr const char* function = "embedding_forward";
  TensorRef ids, weight, y;
  Operands operands() const;
  void check() const;
};

struct EmbeddingBackward {
  static constexpr const char* op = "embedding";
  static constexpr const char* function = "embedding_backward";
  TensorRef ids, dy, dweight;
  Operands operands() const;
  void check() const;
};

}  // namespace Impl

/// `y[row] = weight[ids[row]]`. A row whose id is outside [0, vocabulary) becomes NaN; nothing outside the
/// table is read.
///
/// \param exec   the instance everything is launched on; nothing is fenced or allocated
/// \param ids    (rows), int32
/// \param weight (vocabulary, hidden), T
/// \param y      (rows, hidden), T, overwritten
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, AnyView I, AnyView W, AnyView Y>
void embedding_forward(const Exec& exec, const I& ids, const W& weight, const Y& y) {
  using T = Impl::scalar_t<W>;
  const Impl::EmbeddingForward problem{Impl::input<Exec, std::int32_t, 1>(ids), Impl::input<Exec, T, 2>(weight),
                                       Impl::output<Exec, T, 2>(y)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView I, AnyView W, AnyView Y>
void embedding_forward(const I& ids, const W& weight, const Y& y) {
  embedding_forward(Kokkos::DefaultExecutionSpace(), ids, weight, y);
}

/// Gradient of `embedding_forward`: `dweight[ids[row]] += dy[row]` for every row, in the order of the rows.
/// Rows whose id is outside [0, vocabulary) contribute nothing; table rows without a token are not touched.
///
/// \param exec    the instance
/// \param ids     (rows), int32, the input of forward
/// \param dy      (rows, hidden), T
/// \param dweight (vocabulary, hidden), compute_t<T>, accumulated
/// \throws DimensionMismatch if extents, strides or storage types do not match
template <ExecutionSpace Exec, AnyView I, AnyView DY, AnyView DW>
void embedding_backward(const Exec& exec, const I& ids, const DY& dy, const DW& dweight) {
  using T = Impl::scalar_t<DY>;
  const Impl::EmbeddingBackward problem{Impl::input<Exec, std::int32_t, 1>(ids), Impl::input<Exec, T, 2>(dy),
                                        Impl::output<Exec, compute_t<T>, 2>(dweight)};
  Impl::call(exec, problem);
}

/// The same on the default instance.
template <AnyView I, AnyView DY, AnyView DW>
void embedding_backward(const I& ids, const DY& dy, const DW& dweight) {
  embedding_backward(Kokkos::DefaultExecutionSpace(), ids, dy, dweight);
}

}  // namespace kformer
