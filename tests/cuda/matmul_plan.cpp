// SPDX-License-Identifier: MIT
// The plans of matrix products that a column-major library gets.
#include "ops/linear/cuda/matmul_plan.hpp"

#include <limits>
#include <memory>

#include "cuda/column_major_gemm.hpp"
#include "ops/dense_ref.hpp"
#include "ops/linear/cuda/entries.hpp"
#include "ops/linear_cases.hpp"

namespace kformer::Testing {
using namespace linear_cases;
using Impl::cuda::MatmulPlan;

BOOST_AUTO_TEST_SUITE(matmul_plan)

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

MatmulPlan plan_of(const Impl::LinearForward& p) {
  return Impl::with_product(p, [&](const auto& q) { return Impl::cuda::plan_of(q, p.options.allow_tf32); });
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
  BOOST_TEST(plan_of(same_row).bias == nullptr);
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
    BOOST_TEST(plan_of(p).tf32 == (allowed && std::is_same_v<T, float>));
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

BOOST_AUTO_TEST_CASE(matrices_of_a_batch_are_aligned_as_their_distance) {
  alignas(256) static float memory[4096];
  const auto plan = [](std::int64_t batches, std::int64_t distance) {
    Impl::LinearForward p{dense({batches, 4, 8}, DType::f32, memory),
                          dense({batches, 5, 8}, DType::f32, memory),
                          {},
                          {},
                          dense({batches, 4, 5}, DType::f32, memory)};
    p.x.stride[0] = distance;
    return plan_of(p);
  };
  BOOST_TEST(plan(2, 64).b.alignment == 256u);
  BOOST_TEST(plan(2, 32).b.alignment == 128u);
  BOOST_TEST(plan(2, 33).b.alignment == 4u);
  BOOST_TEST(plan(1, 33).b.alignment == 256u);
}

BOOST_AUTO_TEST_CASE(matrices_of_a_batch_are_numbered_with_32_bits) {
  const auto batch = [](std::int64_t count) {
    return Impl::LinearForward{dense({count, 1, 1}), dense({count, 1, 1}), {}, {}, dense({count, 1, 1})};
  };
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  BOOST_TEST(refusal(batch(most)) == "");
  BOOST_TEST(refusal(batch(most + 1)) == "there are more than 2^31 - 1 matrices");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
