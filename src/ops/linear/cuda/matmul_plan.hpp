// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "kformer/core/dtype.hpp"

/// \file
/// A row-major matrix product as a column-major library takes it. Free of Kokkos and of CUDA.

namespace kformer::Impl::cuda {

/// Element (index, inner) is `data[index·index_stride + inner·inner_stride]`; one of the strides is 1.
struct MatmulFactor {
  const void* data;
  std::int64_t index_stride, inner_stride, batch_stride;
};

/// result(row, col) = scale · Σ_inner left(row, inner) · right(col, inner) + addend(row, col), of each batch.
struct MatmulArguments {
  DType factor_type, result_type;
  std::int64_t batches, rows, cols, inner;
  MatmulFactor left, right;
  void* result;
  std::int64_t row_stride, batch_stride;
  const void* addend;              ///< null for none; may be `result`
  std::int64_t addend_row_stride;  ///< 0 adds the same row everywhere, in all batches
  std::int64_t addend_batch_stride;
  double scale;
  bool allow_tf32;  ///< of float factors
};

/// A matrix whose columns are contiguous, and those of the other batches.
struct ColumnMajor {
  void* data;
  DType type;
  std::int64_t rows, cols, leading;  ///< elements between columns, at least `rows`
  std::int64_t batch_stride;         ///< elements between batches
  unsigned alignment;                ///< of the first element in each batch, a power of two up to 256 bytes
};

/// d = alpha · op(a) · op(b) + beta · c + bias, where op transposes or does nothing, and `bias` is added to each
/// column.
struct MatmulPlan {
  bool transpose_a, transpose_b;
  ColumnMajor a, b, c, d;  ///< `c` is `d` where nothing is read from it
  const void* bias;        ///< null for none; one element per row of `d`, stored as `d`
  std::int64_t batches;
  DType compute;  ///< of the sums, of alpha and of beta
  bool tf32;      ///< whether float factors may be rounded to TF32
  double alpha, beta;

  bool empty() const { return batches == 0 || d.rows == 0 || d.cols == 0; }
};

/// The largest power of two, up to 256, that divides the address.
inline unsigned alignment_of(std::uintptr_t address) {
  unsigned alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}
inline unsigned alignment_of(const void* data) { return alignment_of(reinterpret_cast<std::uintptr_t>(data)); }

/// Contiguous lines of `length` elements as columns.
inline ColumnMajor columns(const void* data, DType type, std::int64_t length, std::int64_t lines,
                           std::int64_t distance, std::int64_t batches, std::int64_t batch_stride) {
  const std::int64_t leading = lines > 1 ? distance : length;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::int64_t next = batches > 1 ? batch_stride * static_cast<std::int64_t>(size_of(type)) : 0;
  return {const_cast<void*>(data),
          type,
          length,
          lines,
          leading > 0 ? leading : 1,
          batch_stride,
          alignment_of(address | static_cast<std::uintptr_t>(next))};
}

inline ColumnMajor factor_columns(const MatmulArguments& p, const MatmulFactor& f, std::int64_t indices) {
  const bool along = f.inner_stride == 1;
  return columns(f.data, p.factor_type, along ? p.inner : indices, along ? indices : p.inner,
                 along ? f.index_stride : f.inner_stride, p.batches, f.batch_stride);
}

/// To a column-major library the row-major result is its transpose, right · leftᵀ: a factor that is contiguous
/// along the sum is a column per index, and one that is contiguous across it a column per summed index.
inline MatmulPlan matmul_plan(const MatmulArguments& p) {
  MatmulPlan plan{};
  plan.a = factor_columns(p, p.right, p.cols);
  plan.b = factor_columns(p, p.left, p.rows);
  plan.transpose_a = p.right.inner_stride == 1;
  plan.transpose_b = p.left.inner_stride != 1;
  plan.d = columns(p.result, p.result_type, p.cols, p.rows, p.row_stride, p.batches, p.batch_stride);
  plan.c = plan.d;
  plan.batches = p.batches;
  plan.tf32 = p.allow_tf32 && p.factor_type == DType::f32;
  plan.compute = p.factor_type == DType::f64 ? DType::f64 : DType::f32;
  plan.alpha = p.scale;
  // A row that differs between the matrices of a batch is not a bias.
  if (p.addend != nullptr && p.addend_row_stride == 0 && (p.batches <= 1 || p.addend_batch_stride == 0)) {
    plan.bias = p.addend;
  } else if (p.addend != nullptr) {
    plan.c =
        columns(p.addend, p.result_type, p.cols, p.rows, p.addend_row_stride, p.batches, p.addend_batch_stride);
    plan.beta = 1;
  }
  return plan;
}

/// The same plan for a caller that has written the bias into every column of `d`, where a library cannot
/// add it.
inline MatmulPlan with_bias_in_result(MatmulPlan plan) {
  plan.bias = nullptr, plan.c = plan.d, plan.beta = 1;
  return plan;
}

/// Why no column-major library can do this, or nothing.
inline std::string matmul_refusal(const MatmulPlan& plan) {
  if (plan.empty()) return {};
  if ((plan.transpose_a ? plan.a.rows : plan.a.cols) == 0) return "the sum is empty";
  if (plan.batches > std::numeric_limits<std::int32_t>::max()) return "there are more than 2^31 - 1 matrices";
  for (const ColumnMajor* matrix : {&plan.a, &plan.b, &plan.c, &plan.d})
    if (matrix->leading < matrix->rows) return "rows of an operand overlap";
  return {};
}

}  // namespace kformer::Impl::cuda
