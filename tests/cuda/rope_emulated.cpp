// SPDX-License-Identifier: MIT
// The CUDA kernels of the rotary embedding on emulated blocks, against the reference by the rule.
#include "cuda/emulated_kernels.hpp"
#include "ops/rope/cuda/entries.hpp"
#include "ops/rope_cases.hpp"

namespace kformer::Testing {
using namespace rope_cases;

BOOST_AUTO_TEST_SUITE(rope_emulated)

constexpr auto forward_kernel = Impl::cuda::RopeRotationEntry<Impl::RopeForward, Exec, +1>::entry();
constexpr auto backward_kernel = Impl::cuda::RopeRotationEntry<Impl::RopeBackward, Exec, -1>::entry();
constexpr EmulatedKernels emulated(forward_kernel, backward_kernel);

// Heads of one thread and of several, groups of heads that are not full, blocks that are not full.
const std::vector<Shape> shapes{{1, 1, 1, 1, 16},  {2, 7, 8, 2, 48}, {3, 5, 4, 1, 64}, {1, 3, 5, 2, 128},
                                {2, 21, 3, 1, 80}, {0, 3, 2, 1, 16}, {2, 0, 2, 1, 16}, {2, 3, 0, 1, 16},
                                {2, 3, 2, 0, 16},  {2, 3, 2, 1, 0}};

BOOST_AUTO_TEST_CASE_TEMPLATE(both_directions_match_the_oracle, T, UpToFloat) {
  for (const Shape shape : shapes) {
    test_rotation<Impl::RopeForward, T>(shape, +1, Rows::aligned, emulated);
    test_rotation<Impl::RopeBackward, T>(shape, -1, Rows::aligned, emulated);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_position_outside_the_table_gives_nan_in_its_row_only, T, UpToFloat) {
  test_positions_outside<T>(32, Rows::aligned, emulated);
}

BOOST_AUTO_TEST_CASE(refusals_say_why) {
  const auto refusal = [](const auto& t) {
    const Impl::RopeForward problem{t.rotation(RopeLayout::half_split)};
    return forward_kernel.reject(problem);
  };
  const auto consecutive = Positions::consecutive;
  BOOST_TEST(refusal(Tensors<float>({1, 3, 2, 1, 8}, consecutive, Rows::aligned)) == "");
  BOOST_TEST(refusal(Tensors<double>({1, 3, 2, 1, 16}, consecutive, Rows::aligned)) ==
             "operands are stored as f64, but it supports only f32, bf16 and f16");
  BOOST_TEST(refusal(Tensors<bf16>({1, 3, 2, 1, 24}, consecutive, Rows::aligned)) ==
             "head_dim 24 is not a multiple of 16");
  BOOST_TEST(refusal(Tensors<bf16>({1, 3, 2, 1, 16}, consecutive, Rows::strided)) ==
             "q has a stride of 42 elements, which is not a multiple of 16 bytes");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
