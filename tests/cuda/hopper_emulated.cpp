// SPDX-License-Identifier: MIT
// The kernels of sm_90a on emulated CUDA blocks, against the reference by the rule.
#include <utility>

#include "cuda/warpgroups.hpp"
#include "cuda/wrong_starts.hpp"
#include "kformer/ops/impl/flash_backward.hpp"
#include "kformer/ops/impl/flash_forward.hpp"
#include "ops/attention/cuda/entries.hpp"
#include "ops/attention_cases.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(hopper_emulated, *boost::unit_test::precondition(HasWarpgroups()))

using Case = AttentionCase;
constexpr auto kernel = Impl::cuda::WarpgroupForwardEntry<Exec>::entry();
constexpr auto backward = Impl::cuda::WarpgroupBackwardEntry<Exec>::entry();

template <class T>
void test_backward(const std::vector<Case>& cases) {
  for (const Case& c : cases) check_backward<T>(backward, c);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(shapes_and_positions, T, Halves) {
  for (const Case& c : {
           Case{1, 1, 1, 1, 1, 64, 64},
           Case{1, 128, 128, 1, 1, 64, 64},
           Case{1, 128, 128, 1, 1, 128, 128},
           Case{2, 130, 75, 2, 1, 64, 64}.causal(),
           Case{1, 75, 130, 3, 3, 128, 128}.causal(),
           Case{1, 0, 0, 2, 1, 64, 64}.packed({130, 0, 1, 70}, {75, 9, 140, 200}).causal(),
           Case{1, 192, 96, 1, 1, 96, 96},
           Case{1, 200, 230, 3, 1, 96, 96}.causal(),
           Case{1, 128, 80, 1, 1, 256, 256},
           Case{1, 130, 190, 3, 1, 256, 256}.causal(),
       })
    check_forward<T>(kernel, c);
}

// Both types differ only in how they are rounded.
BOOST_AUTO_TEST_CASE(more_shapes_and_positions) {
  for (const Case& c : {
           Case{2, 1, 113, 4, 1, 64, 64},
           Case{1, 260, 700, 2, 1, 64, 64}.causal(),
           Case{1, 140, 400, 2, 1, 128, 128},
           Case{1, 65, 390, 1, 1, 128, 128}.causal().window(140),
           Case{1, 150, 270, 1, 1, 64, 64}.window(33),
           Case{1, 130, 270, 2, 1, 64, 64}.softcap(2),
           Case{1, 75, 260, 2, 1, 64, 64}.causal().spread(5),
           Case{1, 300, 20, 1, 1, 64, 64}.causal(),
           Case{1, 0, 0, 1, 1, 128, 128}.packed({0, 200, 3}, {5, 130, 0}).window(60),
           Case{1, 150, 300, 3, 1, 128, 128}.causal(),
           Case{1, 300, 20, 1, 1, 128, 128}.causal(),
           Case{1, 1, 1, 1, 1, 96, 96},
           Case{2, 70, 300, 2, 2, 96, 96}.window(101),
           Case{1, 65, 290, 1, 1, 96, 96}.causal().window(100).softcap(2),
           Case{1, 300, 20, 1, 1, 96, 96}.causal(),
           Case{1, 0, 0, 3, 1, 96, 96}.packed({130, 0, 1, 200}, {75, 9, 140, 250}).causal(),
           Case{1, 1, 1, 1, 1, 256, 256},
           Case{2, 70, 250, 1, 1, 256, 256}.window(81),
           Case{1, 65, 250, 1, 1, 256, 256}.causal().window(90).softcap(2),
           Case{1, 75, 170, 2, 1, 256, 256}.causal().spread(5),
           Case{1, 150, 20, 1, 1, 256, 256}.causal(),
           Case{1, 0, 0, 3, 1, 256, 256}.packed({75, 0, 1, 140}, {60, 9, 10, 90}).causal(),
       })
    check_forward<bf16>(kernel, c);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_of_shapes_and_positions, T, Halves) {
  test_backward<T>({
      Case{1, 1, 1, 1, 1, 64, 64},
      Case{1, 128, 128, 1, 1, 64, 64},
      Case{1, 128, 128, 1, 1, 128, 128},
      Case{2, 130, 75, 2, 1, 64, 64}.causal(),
      Case{1, 75, 130, 3, 3, 128, 128}.causal(),
      Case{1, 0, 0, 4, 2, 64, 64}.packed({130, 0, 1, 70}, {75, 9, 140, 200}).causal(),
  });
}

BOOST_AUTO_TEST_CASE(backward_of_more_shapes_and_positions) {
  test_backward<bf16>({
      Case{2, 1, 113, 4, 1, 64, 64},
      Case{1, 260, 400, 2, 1, 64, 64}.causal(),
      Case{1, 140, 300, 2, 1, 128, 128},
      Case{1, 65, 390, 1, 1, 128, 128}.causal().window(140),
      Case{1, 300, 270, 1, 1, 64, 64}.window(33),
      Case{1, 75, 260, 2, 1, 64, 64}.causal().spread(5),
      Case{1, 300, 20, 2, 1, 64, 64}.causal(),
      Case{1, 0, 0, 1, 1, 128, 128}.packed({0, 200, 3}, {5, 130, 0}).window(60),
  });
}

BOOST_AUTO_TEST_CASE(what_is_hidden_may_be_anything) {
  using T = bf16;
  const Case causal = Case{1, 150, 270, 2, 1, 64, 64}.causal();
  for (const Poison what : {Poison::last_value, Poison::last_key})
    check_forward<T>(kernel, causal.poison(what));
  check_forward<T>(kernel, Case{1, 130, 300, 1, 1, 128, 128}.window(20).poison(Poison::last_value));
  check_forward<T>(kernel, Case{1, 30, 300, 1, 1, 128, 128}.causal().window(20).poison(Poison::hidden_keys));
  check_forward<T>(kernel, Case{1, 200, 70, 1, 1, 64, 64}.causal().poison(Poison::blind_queries));
  for (const int features : {96, 256}) {
    const Case square = Case{1, 140, 200, 2, 1, features, features}.causal();
    for (const Poison what : {Poison::last_value, Poison::last_key})
      check_forward<T>(kernel, square.poison(what));
    check_forward<T>(
        kernel, Case{1, 30, 200, 1, 1, features, features}.causal().window(20).poison(Poison::hidden_keys));
    check_forward<T>(kernel, Case{1, 140, 70, 1, 1, features, features}.causal().poison(Poison::blind_queries));
  }
}

BOOST_AUTO_TEST_CASE(nan_enters_only_the_gradients_that_see_it) {
  const Case c{1, 75, 150, 2, 1, 64, 64}, longer{1, 150, 75, 2, 1, 64, 64};
  const Case packed = Case{1, 0, 0, 2, 1, 64, 64}.packed({40, 30, 0, 5}, {70, 20, 3, 0}).causal();
  test_backward<bf16>({
      c.window(10).poison(Poison::hidden_keys),
      c.causal().window(10).poison(Poison::hidden_keys),
      packed.poison(Poison::hidden_keys),
      longer.causal().poison(Poison::blind_queries),
      packed.poison(Poison::blind_queries),
      c.causal().poison(Poison::last_value),
      c.causal().poison(Poison::last_key),
      packed.poison(Poison::last_key),
      c.causal().poison(Poison::first_gradient),
      packed.poison(Poison::first_gradient),
      Case{1, 75, 80, 2, 1, 128, 128}.causal().poison(Poison::last_key),
      Case{1, 75, 80, 2, 1, 128, 128}.causal().poison(Poison::first_gradient),
  });
}

// Tiles of 1, 2 and 3 passes follow each other in a block.
BOOST_AUTO_TEST_CASE(bits_do_not_depend_on_the_number_of_blocks) {
  using Device = Impl::cuda::Device<Exec>;
  for (const Case& c : {
           Case{1, 300, 300, 3, 1, 128, 128}.causal(),
           Case{1, 200, 170, 2, 1, 256, 256}.causal(),
       }) {
    AttentionTensors<bf16> t(c, Rows::aligned);
    const Impl::AttentionForward p = t.forward_problem();
    const auto bits_with = [&](int multiprocessors) {
      t.out.reset();
      t.lse.reset();
      Impl::cuda::attention_forward_wgmma(
          Device::stream(Exec()), multiprocessors, Impl::cuda::Half::bf16, Impl::cuda::attention_arguments(p),
          {Impl::cuda::tensor_shape(p.q), Impl::cuda::tensor_shape(p.k), Impl::cuda::tensor_shape(p.v)},
          Impl::cuda::sequences_of(p));
      Exec().fence("kformer::Testing::bits_with");
      return std::pair(t.out.bits(), t.lse.bits());
    };
    const auto of_one_tile_each = bits_with(1000);
    for (const int multiprocessors : {1, 4}) BOOST_TEST((bits_with(multiprocessors) == of_one_tile_each));
  }
}

BOOST_AUTO_TEST_CASE(wrong_starts_stay_inside) {
  const auto case_of_64 = [] {
    Case c = case_of_wrong_starts();
    c.head_dim = c.v_head_dim = 64;
    return c;
  };
  for (const WrongStarts& starts : wrong_starts) {
    AttentionTensors<bf16> t(case_of_64(), Rows::aligned);
    const SequenceStarts& own = starts.understood;
    check_wrong_starts(kernel, t, t.forward_problem(), starts, {&t.out, &t.lse}, {{&t.out, &own.q}});
  }
  check_wrong_starts_of_backward(backward, 64);
}

BOOST_AUTO_TEST_CASE(what_it_refuses) {
  const auto refusal = [](const Case& c) {
    AttentionTensors<bf16> t(c, Rows::aligned);
    return kernel.reject(t.forward_problem());
  };
  for (const int d : {64, 96, 128, 256}) BOOST_TEST(refusal({1, 5, 5, 1, 1, d, d}) == "");
  BOOST_TEST(refusal({1, 5, 5, 1, 1, 80, 80}) ==
             "head_dim and v_head_dim are 80 and 80, but it supports only equal ones out of 64, 96, 128, 256");
  BOOST_TEST(refusal({1, 5, 5, 1, 1, 64, 128}) ==
             "head_dim and v_head_dim are 64 and 128, but it supports only equal ones out of 64, 96, 128, 256");
  const AttentionTensors<bf16> of_96(Case{1, 5, 5, 1, 1, 96, 96}, Rows::aligned);
  BOOST_TEST(backward.reject(of_96.backward_problem()) ==
             "head_dim and v_head_dim are 96 and 96, but it supports only equal ones out of 64, 128");
  BOOST_TEST(refusal({1, 5, 0, 1, 1, 64, 64}) == "k is empty");
  BOOST_TEST(refusal({0, 5, 5, 1, 1, 64, 64}) == "q is empty");
  const AttentionTensors<bf16> capped(Case{1, 5, 5, 1, 1, 64, 64}.softcap(2), Rows::aligned);
  BOOST_TEST(backward.reject(capped.backward_problem()) == "it does not support a soft cap");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
