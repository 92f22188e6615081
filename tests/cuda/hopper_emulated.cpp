// SPDX-License-Identifier: MIT
// The kernels of sm_90a on emulated CUDA blocks, against the reference by the rule.
#include "kformer/ops/impl/flash_forward.hpp"
#include "ops/attention/cuda/entries.hpp"
#include "ops/attention_cases.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(hopper_emulated)

using Case = AttentionCase;
constexpr auto kernel = Impl::cuda::WarpgroupForwardEntry<Exec>::entry();

BOOST_AUTO_TEST_CASE_TEMPLATE(shapes_and_positions, T, Halves) {
  for (const Case& c : {
           Case{1, 1, 1, 1, 1, 64, 64},
           Case{1, 128, 128, 1, 1, 64, 64},
           Case{1, 128, 128, 1, 1, 128, 128},
           Case{2, 130, 75, 2, 1, 64, 64}.causal(),
           Case{1, 75, 130, 3, 3, 128, 128}.causal(),
           Case{2, 1, 113, 4, 1, 64, 64},
           Case{1, 260, 700, 2, 1, 64, 64}.causal(),
           Case{1, 140, 400, 2, 1, 128, 128},
           Case{1, 65, 390, 1, 1, 128, 128}.causal().window(140),
           Case{1, 150, 270, 1, 1, 64, 64}.window(33),
           Case{1, 130, 270, 2, 1, 64, 64}.softcap(2),
           Case{1, 75, 260, 2, 1, 64, 64}.causal().spread(5),
           Case{1, 300, 20, 1, 1, 64, 64}.causal(),
       })
    check_forward<T>(kernel, c);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(what_is_hidden_may_be_anything, T, Halves) {
  const Case causal = Case{1, 150, 270, 2, 1, 64, 64}.causal();
  for (const Poison what : {Poison::last_value, Poison::last_key})
    check_forward<T>(kernel, causal.poison(what));
  check_forward<T>(kernel, Case{1, 130, 300, 1, 1, 128, 128}.window(20).poison(Poison::last_value));
  check_forward<T>(kernel, Case{1, 30, 300, 1, 1, 128, 128}.causal().window(20).poison(Poison::hidden_keys));
  check_forward<T>(kernel, Case{1, 200, 70, 1, 1, 64, 64}.causal().poison(Poison::blind_queries));
}

BOOST_AUTO_TEST_CASE(what_it_refuses) {
  const auto refusal = [](const Case& c) {
    AttentionTensors<bf16> t(c, Rows::aligned);
    return kernel.reject(t.forward_problem());
  };
  BOOST_TEST(refusal({1, 5, 5, 1, 1, 64, 64}) == "");
  BOOST_TEST(refusal({1, 5, 5, 1, 1, 96, 96}) ==
             "head_dim and v_head_dim are 96 and 96, but it supports only 64 and 64, or 128 and 128");
  BOOST_TEST(refusal({1, 5, 5, 1, 1, 64, 128}) ==
             "head_dim and v_head_dim are 64 and 128, but it supports only 64 and 64, or 128 and 128");
  BOOST_TEST(refusal(Case{1, 5, 5, 1, 1, 64, 64}.packed({2, 3}, {4, 1})) ==
             "sequences are packed, but it supports only batches");
  BOOST_TEST(refusal({1, 5, 0, 1, 1, 64, 64}) == "k is empty");
  BOOST_TEST(refusal({0, 5, 5, 1, 1, 64, 64}) == "q is empty");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
