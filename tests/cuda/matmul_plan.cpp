// SPDX-License-Identifier: MIT
// The plans of matrix products that a column-major library gets, carried out by a small gemm of the test.
#include "ops/linear/cuda/matmul_plan.hpp"

#include <memory>

#include "ops/linear/cuda/entries.hpp"
#include "ops/linear_cases.hpp"

namespace kformer::Testing {
using namespace linear_cases;

BOOST_AUTO_TEST_SUITE(matmul_plan)

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

double element(const ColumnMajor& m, std::int64_t batch, std::int64_t row, std::int64_t col) {
  double value = 0;
  with_number(m.type, [&]<class T>(T) {
    value = static_cast<compute_t<T>>(
        static_cast<const T*>(m.data)[batch * m.batch_stride + col * m.leading + row]);
  });
  return value;
}

// The documented result of cublasLtMatmul, element by element, after its checks.
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

const auto plans = []<class P>(const P& problem, const std::vector<Output*>& outputs, auto verify) {
  static constexpr auto kernel = Impl::cuda::MatmulEntry<P, Exec, ColumnMajorGemm>::entry();
  test_kernels({&kernel, 1}, problem, outputs, verify);
};

constexpr Shape shapes[] = {{1, 1, 1},    {3, 5, 7}, {1, 113, 75}, {75, 1, 113}, {75, 113, 1},  {16, 24, 8},
                            {65, 31, 33}, {0, 8, 3}, {4, 3, 0},    {3, 5, 7, 1}, {9, 16, 5, 3}, {1, 8, 4, 4}};
constexpr Rows every_rows[] = {Rows::strided, Rows::packed, Rows::aligned};

constexpr double scale = -0.75;

// The residual has other strides than y.
template <class T>
Tensors<T> tensors(Shape shape, Rows rows) {
  return {shape, rows, rows == Rows::packed ? Rows::strided : Rows::packed, 20261122};
}

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_plans_match_the_oracle, T, Scalars) {
  for (const Shape shape : shapes)
    for (const Rows rows : every_rows)
      for (const Added added : every_added) test_forward(tensors<T>(shape, rows), added, scale, plans);
}

struct GemmWithoutBias : ColumnMajorGemm {
  static std::string refusal(const MatmulPlan& p) { return p.bias ? "it adds no bias" : ""; }
  static void run(const char* label, Impl::cuda::Stream stream, const MatmulPlan& p, void* data,
                  std::size_t bytes) {
    BOOST_TEST(p.bias == nullptr);
    ColumnMajorGemm::run(label, stream, p, data, bytes);
  }
};

BOOST_AUTO_TEST_CASE_TEMPLATE(a_bias_that_the_library_does_not_add_is_written_first, T, Scalars) {
  const auto kernels = []<class P>(const P& problem, const std::vector<Output*>& outputs, auto verify) {
    static constexpr auto kernel = Impl::cuda::MatmulEntry<P, Exec, GemmWithoutBias>::entry();
    test_kernels({&kernel, 1}, problem, outputs, verify);
  };
  for (const Shape shape : shapes)
    for (const Rows rows : every_rows) test_forward(tensors<T>(shape, rows), Added::bias, scale, kernels);
}

// Where there is nothing to sum, plans are refused: see below.
BOOST_AUTO_TEST_CASE_TEMPLATE(backward_input_plans_match_the_oracle, T, Scalars) {
  for (const Shape shape : shapes)
    for (const Rows rows : every_rows)
      if (shape.out > 0) test_backward_input(tensors<T>(shape, rows), scale, plans);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_weight_plans_accumulate, T, Scalars) {
  for (const Shape shape : shapes)
    for (const Rows rows : every_rows)
      if (shape.rows > 0) test_backward_weight(tensors<T>(shape, rows), scale, plans);
}

template <class P>
std::string refusal(const P& p) {
  return Impl::cuda::MatmulEntry<P, Exec, ColumnMajorGemm>::reject(p);
}

BOOST_AUTO_TEST_CASE(what_no_library_takes_is_refused) {
  const auto none = tensors<float>({4, 0, 3}, Rows::packed), t = tensors<float>({4, 6, 5}, Rows::packed);
  BOOST_TEST(refusal(Impl::LinearForward{none.x.ref(), none.weight.ref(), {}, {}, none.y.ref()}) ==
             "the sum is empty");
  BOOST_TEST(refusal(Impl::LinearBackwardInput{none.weight.ref(), none.dy.ref(), none.dx.ref()}) == "");

  Impl::LinearForward p{t.x.ref(), t.weight.ref(), {}, t.residual.ref(), t.y.ref()};
  BOOST_TEST(refusal(p) == "");
  for (TensorRef* operand : {&p.x, &p.weight, &p.residual, &p.y}) {
    const TensorRef kept = *operand;
    operand->stride[0] = operand->extent[1] - 1;
    BOOST_TEST(refusal(p) == "rows of an operand overlap");
    *operand = kept;
  }
  const auto batch = tensors<float>({4, 6, 5, 3}, Rows::packed);
  Impl::LinearForward same_row{batch.x.ref(), batch.weight.ref(), {}, batch.residual.ref(), batch.y.ref()};
  same_row.residual.stride[1] = 0;
  BOOST_TEST(refusal(same_row) == "rows of an operand overlap");
  BOOST_TEST(Impl::cuda::plan_of(same_row).bias == nullptr);
  same_row.residual.stride[0] = 0;
  BOOST_TEST(refusal(same_row) == "");
  // One row overlaps with none, whatever its stride.
  Impl::LinearForward row{t.x.ref(), t.weight.ref(), {}, {}, t.y.ref()};
  row.x.extent[0] = row.y.extent[0] = 1;
  row.x.stride[0] = row.y.stride[0] = 0;
  BOOST_TEST(refusal(row) == "");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(tf32_is_for_floats_that_may_be_rounded, T, Scalars) {
  const auto t = tensors<T>({4, 6, 5}, Rows::packed);
  for (const bool allowed : {false, true}) {
    Impl::LinearForward p{t.x.ref(), t.weight.ref(), {}, {}, t.y.ref()};
    p.options.allow_tf32 = allowed;
    BOOST_TEST(Impl::cuda::plan_of(p).tf32 == (allowed && std::is_same_v<T, float>));
  }
}

BOOST_AUTO_TEST_CASE(alignments_are_those_of_the_addresses) {
  const std::unique_ptr<std::byte[]> memory(new std::byte[1024]);
  std::byte* start = memory.get() + 256 - reinterpret_cast<std::uintptr_t>(memory.get()) % 256;
  for (const unsigned power : {1u, 2u, 16u, 128u, 256u})
    BOOST_TEST(Impl::cuda::alignment_of(start + power) == power);
  BOOST_TEST(Impl::cuda::alignment_of(start + 512) == 256u);
  BOOST_TEST(Impl::cuda::alignment_of(nullptr) == 256u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
