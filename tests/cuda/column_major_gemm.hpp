// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

#include "kformer/core/scalar.hpp"
#include "ops/common/cuda/launch.hpp"
#include "ops/linear/cuda/matmul_plan.hpp"

/// \file
/// A small gemm that carries out the plans of products in place of a library.

namespace kformer::Testing {

using Impl::cuda::ColumnMajor;
using Impl::cuda::MatmulPlan;

template <class F>
void with_number(DType type, F f) {
  switch (type) {
    case DType::f16:
      return f(f16());
    case DType::bf16:
      return f(bf16());
    case DType::f32:
      return f(float());
    case DType::f64:
      return f(double());
    case DType::i32:
    case DType::u8:
      break;
  }
}

inline double element(const ColumnMajor& m, std::int64_t batch, std::int64_t row, std::int64_t col) {
  double value = 0;
  with_number(m.type, [&]<class T>(T) {
    value = static_cast<compute_t<T>>(
        static_cast<const T*>(m.data)[batch * m.batch_stride + col * m.leading + row]);
  });
  return value;
}

/// The documented result of cublasLtMatmul, element by element, after its checks.
struct ColumnMajorGemm {
  static constexpr const char* name = "column_major_gemm";
  static std::string refusal(const MatmulPlan&) { return {}; }

  template <class Sum>
  static void multiply(const MatmulPlan& p) {
    for (std::int64_t batch = 0; batch < p.batches; ++batch) multiply<Sum>(p, batch);
  }

  template <class Sum>
  static void multiply(const MatmulPlan& p, std::int64_t batch) {
    const std::int64_t inner = p.transpose_a ? p.a.rows : p.a.cols;
    for (std::int64_t col = 0; col < p.d.cols; ++col)
      for (std::int64_t row = 0; row < p.d.rows; ++row) {
        Sum sum = 0;
        for (std::int64_t k = 0; k < inner; ++k)
          sum += Sum(p.transpose_a ? element(p.a, batch, k, row) : element(p.a, batch, row, k)) *
                 Sum(p.transpose_b ? element(p.b, batch, col, k) : element(p.b, batch, k, col));
        sum = Sum(p.alpha) * sum;
        if (p.beta != 0) sum += Sum(p.beta) * Sum(element(p.c, batch, row, col));
        if (p.bias != nullptr)
          sum += Sum(element({const_cast<void*>(p.bias), p.d.type, 0, 0, 0, 0, 0}, 0, row, 0));
        with_number(p.d.type, [&]<class T>(T) {
          static_cast<T*>(p.d.data)[batch * p.d.batch_stride + col * p.d.leading + row] =
              T(static_cast<compute_t<T>>(sum));
        });
      }
  }

  static void run(const char*, Impl::cuda::Stream, const MatmulPlan& p, void*, std::size_t) {
    const auto fits = [](const ColumnMajor& m, std::int64_t rows, std::int64_t cols) {
      return m.rows == rows && m.cols == cols && m.leading >= std::max<std::int64_t>(rows, 1);
    };
    const std::int64_t inner = p.transpose_a ? p.a.rows : p.a.cols;
    BOOST_TEST(fits(p.a, p.transpose_a ? inner : p.d.rows, p.transpose_a ? p.d.rows : inner));
    BOOST_TEST(fits(p.b, p.transpose_b ? p.d.cols : inner, p.transpose_b ? inner : p.d.cols));
    BOOST_TEST(fits(p.c, p.d.rows, p.d.cols));
    BOOST_TEST(fits(p.d, p.d.rows, p.d.cols));
    BOOST_TEST((p.a.type == p.b.type && p.c.type == p.d.type));
    BOOST_TEST((p.compute == (p.a.type == DType::f64 ? DType::f64 : DType::f32)));
    if (p.c.data == p.d.data) BOOST_TEST(p.c.leading == p.d.leading);
    for (const ColumnMajor* m : {&p.a, &p.b, &p.c, &p.d})
      for (std::int64_t batch = 0; batch < p.batches; ++batch)
        BOOST_TEST((reinterpret_cast<std::uintptr_t>(m->data) +
                    static_cast<std::uintptr_t>(batch * m->batch_stride *
                                                static_cast<std::int64_t>(size_of(m->type)))) %
                       m->alignment ==
                   0u);
    if (p.compute == DType::f64)
      multiply<double>(p);
    else
      multiply<float>(p);
  }
};

}  // namespace kformer::Testing
