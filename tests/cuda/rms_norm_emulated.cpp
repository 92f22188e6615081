// SPDX-License-Identifier: MIT
// The CUDA kernels of RMSNorm on emulated blocks, against the reference by the rule.
#include "cuda/aliasing.hpp"
#include "cuda/emulated_kernels.hpp"
#include "ops/rms_norm/cuda/entries.hpp"
#include "ops/rms_norm_cases.hpp"

namespace kformer::Testing {
using namespace rms_norm_cases;

BOOST_AUTO_TEST_SUITE(rms_norm_emulated)

constexpr auto forward_kernel = Impl::cuda::RmsNormForwardEntry<Exec>::entry();
constexpr auto backward_kernel = Impl::cuda::RmsNormBackwardEntry<Exec>::entry();
constexpr EmulatedKernels emulated(forward_kernel, backward_kernel);

// Rows of one chunk, of warps and blocks that are not full, and of all sizes; blocks of one row and of several.
const std::vector<RowShape> shapes{{1, 8}, {9, 16}, {75, 120}, {67, 1160}, {2, 8192}, {0, 8}};

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, UpToFloat) {
  for (const RowShape shape : shapes)
    for (const bool fused : {false, true}) test_forward<T>(shape, fused, Rows::aligned, emulated);
  test_norm_of_the_stored_sum(8, emulated);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, UpToFloat) {
  for (const RowShape shape : shapes)
    for (const bool fused : {false, true}) test_backward<T>(shape, fused, Rows::aligned, emulated);
  // More rows in a block than it has warps.
  test_backward<T>({2100, 8}, false, Rows::aligned, emulated);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(outputs_may_be_inputs, T, UpToFloat) {
  for (const RowShape shape : {RowShape{9, 16}, RowShape{67, 1160}, RowShape{2, 8192}}) {
    Tensors<T> plain(shape, false, Rows::aligned), fused(shape, true, Rows::aligned);
    Impl::RmsNormForward forward = plain.forward_problem();
    forward.y = forward.x;
    check_aliasing(forward_kernel, plain.forward_problem(), plain.y, forward, plain.x, {&plain.rstd});
    for (auto* input : {&fused.x, &fused.residual}) {
      Impl::RmsNormForward problem = fused.forward_problem();
      problem.sum = input->ref();
      check_aliasing(forward_kernel, fused.forward_problem(), fused.sum, problem, *input,
                     {&fused.y, &fused.rstd});
    }
    for (Tensors<T>* t : {&plain, &fused}) t->rstd.fill([](std::size_t) { return 0.5f; });
    Impl::RmsNormBackward backward = plain.backward_problem();
    backward.dx = backward.dy;
    check_aliasing(backward_kernel, plain.backward_problem(), plain.dx, backward, plain.dy, {&plain.dweight});
    for (auto* input : {&fused.dy, &fused.dsum}) {
      Impl::RmsNormBackward problem = fused.backward_problem();
      problem.dx = input->ref();
      check_aliasing(backward_kernel, fused.backward_problem(), fused.dx, problem, *input, {&fused.dweight});
    }
  }
}

using WideScalars = std::tuple<float, bf16>;

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_of_any_magnitude_are_normalised, T, WideScalars) {
  for (const int exponent : {67, -67, -100, 100})
    for (const bool fused : {false, true}) BOOST_TEST_CONTEXT("2^" << exponent << (fused ? ", fused" : "")) {
        test_magnitude<T>({3, 40}, exponent, fused, Rows::aligned, emulated);
      }
  for (const int exponent : {67, -67}) test_magnitude<T>({2, 1544}, exponent, true, Rows::aligned, emulated);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(eps_is_scaled_with_its_row, T, WideScalars) {
  for (const std::int64_t hidden : {40, 1544}) test_large_eps<T>({3, hidden}, Rows::aligned, emulated);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_without_a_norm_have_their_natural_result, T, UpToFloat) {
  for (const std::int64_t hidden : {40, 1544}) test_rows_without_a_norm<T>(hidden, Rows::aligned, emulated);
}

// The workspace size is requested before the addresses of operands are known.
BOOST_AUTO_TEST_CASE(the_workspace_is_enough_for_the_portable_kernel) {
  Impl::RmsNormBackward problem{};
  problem.x.dtype = DType::bf16;
  problem.x.rank = 2;
  for (std::int64_t rows = 0; rows < 20000; ++rows) {
    problem.x.extent = {rows, 8};
    const std::size_t portable = Impl::rms_norm_backward_workspace(problem);
    BOOST_REQUIRE(backward_kernel.workspace_bytes(problem) >= portable);
  }
  BOOST_TEST(backward_kernel.reject(problem) == "");
}

BOOST_AUTO_TEST_CASE(refusals_say_why) {
  const auto refusal = [](const auto& t) { return forward_kernel.reject(t.forward_problem()); };
  BOOST_TEST(refusal(Tensors<float>({3, 8}, false, Rows::aligned)) == "");
  BOOST_TEST(refusal(Tensors<double>({3, 8}, false, Rows::aligned)) ==
             "operands are stored as f64, but it supports only f32, bf16 and f16");
  BOOST_TEST(refusal(Tensors<bf16>({3, 12}, false, Rows::aligned)) ==
             "a row has 24 bytes, which is not a multiple of 16");
  BOOST_TEST(refusal(Tensors<bf16>({3, 8}, true, Rows::strided)) ==
             "x has a stride of 13 elements, which is not a multiple of 16 bytes");
  BOOST_TEST(refusal(Tensors<float>({1, 8200}, false, Rows::aligned)) ==
             "a row has 32800 bytes, but it keeps at most 32768 in registers");
  const Tensors<f16> t({3, 16}, true, Rows::aligned);
  Impl::RmsNormBackward p = t.backward_problem();
  p.dsum.data = static_cast<std::uint16_t*>(p.dsum.data) + 1;
  BOOST_TEST(backward_kernel.reject(p) == "dsum is not aligned to 16 bytes");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
