// SPDX-License-Identifier: MIT
// The tensor-core kernels of attention backward on emulated CUDA blocks, against the reference by the rule.
#include "cuda/backward_kernels.hpp"
#include "cuda/nan_of_backward.hpp"
#include "cuda/wrong_starts.hpp"
#include "kformer/ops/impl/flash_backward.hpp"
#include "ops/attention/cuda/entries.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(attention_backward_emulated)

using Case = AttentionCase;

constexpr auto kernel = Impl::cuda::BackwardEntry<Exec>::entry();

template <class T>
void test_backward(const Case& c) {
  const AttentionTensors<T> t(c, Rows::aligned);
  BOOST_TEST(kernel.workspace_bytes(t.backward_problem()) ==
             static_cast<std::size_t>(c.batch * c.q_heads * c.q_len) * sizeof(float));
  check_backward<T>(kernel, c);
}

template <class T>
void test_all(const std::vector<Case>& cases) {
  for (const Case& c : cases) test_backward<T>(c);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(shapes_and_positions, T, Halves) {
  test_all<T>(edge_cases());
  test_all<T>({
      Case{8, 1, 1, 1, 1, 8, 8},
      Case{1, 75, 75, 4, 1, 8, 40}.causal(),
      Case{1, 113, 113, 3, 3, 16, 8}.window(20),
      Case{2, 20, 9, 8, 1, 8, 8}.window(3),
      Case{4, 1, 113, 4, 1, 64, 64},
      Case{4, 75, 1, 2, 1, 8, 8},
      Case{1, 130, 200, 2, 2, 16, 16}.causal().window(70),
      Case{2, 75, 113, 2, 1, 8, 8}.spread(5),
      Case{2, 75, 113, 2, 1, 8, 8}.causal().spread(5),
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(head_dimensions, T, Halves) {
  std::vector<Case> cases;
  for (const std::int64_t dim : {8, 40, 64, 72, 96, 104, 128, 136, 256})
    cases.push_back(Case{1, 66, 75, 2, 1, dim, dim}.causal());
  cases.push_back({1, 66, 75, 2, 1, 192, 128});
  cases.push_back({1, 66, 75, 2, 2, 24, 96});
  test_all<T>(cases);
}

// Several tiles of either side on every row of the table, more than two passes each. A stage is copied into again,
// while other warps lag behind: in every other pair of emulated blocks copies arrive at once.
void test_tiles() {
  test_all<bf16>({
      Case{2, 140, 150, 4, 2, 64, 64}.causal(),
      Case{1, 270, 75, 2, 2, 96, 96}.scale(0.3),
      Case{1, 75, 145, 4, 2, 96, 96}.causal(),
      Case{1, 270, 70, 2, 1, 128, 128}.window(90),
      Case{1, 70, 270, 2, 2, 128, 128}.causal(),
      Case{1, 140, 135, 4, 2, 192, 256}.causal(),
      Case{1, 0, 0, 2, 1, 128, 96}.packed({130, 0, 41}, {70, 5, 67}).causal().softcap(2),
  });
}

BOOST_AUTO_TEST_CASE(tiles) { with_tiles_of_each_memory(test_tiles); }

BOOST_AUTO_TEST_CASE_TEMPLATE(scales, T, Halves) {
  test_all<T>({
      Case{1, 75, 113, 4, 2, 64, 64}.scale(0.3),
      Case{1, 75, 113, 4, 2, 64, 64}.causal().softcap(3).scale(0.3),
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(soft_caps, T, Halves) {
  test_all<T>({
      Case{1, 75, 113, 4, 2, 8, 8}.softcap(1),
      Case{1, 75, 113, 4, 1, 8, 8}.causal().window(40).softcap(20).spread(3),
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(packed_sequences, T, Halves) {
  const Case c{1, 0, 0, 4, 2, 8, 8};
  const std::vector<int> lengths{75, 0, 1, 40, 64}, others{64, 7, 0, 90, 65};
  test_all<T>({
      c.packed(lengths, lengths).causal(),
      c.packed(lengths, others).causal().window(30),
      c.packed({}, {}),
      c.packed({0, 0}, {0, 3}),
      c.packed({130}, {75}).causal(),
      c.packed(std::vector<int>(9, 3), std::vector<int>(9, 5)).causal(),
      Case{1, 0, 0, 2, 1, 24, 40}.packed(lengths, others).causal().softcap(2),
  });
}

BOOST_AUTO_TEST_CASE(wrong_starts_stay_inside) { check_wrong_starts_of_backward(kernel); }

BOOST_AUTO_TEST_CASE(nan_stays_where_it_is_seen) {
  check_nan_of_backward<bf16>(kernel, {1, 75, 80, 2, 1, 136, 144});
}

BOOST_AUTO_TEST_CASE(refusals) {
  const auto why = [](const Case& c, auto change) { return refusal_of_backward<bf16>(kernel, c, change); };
  const Case c{1, 5, 7, 2, 1, 16, 16};
  const auto as_it_is = [](auto&) {};
  BOOST_TEST(why(c, as_it_is) == "");
  BOOST_TEST(why({1, 5, 7, 2, 1, 12, 16}, as_it_is) == "head_dim 12 is not a multiple of 8 from 8 to 256");
  BOOST_TEST(why(c, [](auto& p) { p.options.compute = Precision::full; }) ==
             "it rounds attention weights to 16 bits, but compute = full was requested");
  BOOST_TEST(why(c.sinks(), as_it_is) == "it does not support bias, ALiBi slopes, sinks or block masks");
  BOOST_TEST(why(c.scale(-0.7), as_it_is) == "the scale is not positive");
  const auto shift = [](TensorRef& x) { x.data = static_cast<std::uint16_t*>(x.data) + 1; };
  BOOST_TEST(why(c, [&](auto& p) { shift(p.dout); }) == "dout is not aligned to 16 bytes");
  BOOST_TEST(why(c, [&](auto& p) { shift(p.dq); }) == "dq is not aligned to 16 bytes");
  BOOST_TEST(why(c, [&](auto& p) { shift(p.dk); }) == "dk is not aligned to 16 bytes");
  BOOST_TEST(why(c, [&](auto& p) { p.dv.stride[1] += 4; }) ==
             "dv has a stride of 28 elements, which is not a multiple of 8");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
