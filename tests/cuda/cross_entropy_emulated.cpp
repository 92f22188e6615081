// SPDX-License-Identifier: MIT
// The kernels of cross entropy that read by 16 bytes, on emulated CUDA blocks, against the reference by the
// rule.
#include "ops/cross_entropy/cuda/entries.hpp"
#include "ops/cross_entropy_cases.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(cross_entropy_emulated)

CrossEntropyKernels emulated() {
  static constexpr auto forward = Impl::cuda::CrossEntropyForwardEntry<Exec>::entry();
  static constexpr auto backward = Impl::cuda::CrossEntropyBackwardEntry<Exec>::entry();
  return {{&forward, 1}, {&backward, 1}};
}

// No chunk, chunks and loose numbers on both sides, a thread with several chunks, threads with four at a time.
const std::vector<CrossEntropyShape> shapes{{60, 1}, {60, 5},    {60, 17}, {40, 113},
                                            {0, 8},  {20, 4131}, {8, 9000}};

BOOST_AUTO_TEST_CASE_TEMPLATE(kernels_match_the_oracle, T, UpToFloat) {
  for (const CrossEntropyOptions& options : {option_sets.front(), option_sets.back()})
    check_shapes<T>(shapes, options, emulated());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(each_option_alone_matches_the_oracle, T, UpToFloat) {
  for (const CrossEntropyOptions& options : option_sets) check_shapes<T>({{60, 33}}, options, emulated());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rising_logits_after_impossible_tokens_match_the_oracle, T, UpToFloat) {
  check_rising_logits_after_impossible_tokens_match_the_oracle<T>(emulated());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(exponentials_of_16_bits_are_rounded_once, T, Halves) {
  check_exponentials_of_16_bits_are_rounded_once<T>(emulated());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(unusual_rows_are_as_documented, T, UpToFloat) {
  check_ignored_rows_are_zero_whatever_they_hold<T>(emulated());
  check_an_invalid_target_gives_nan_in_its_row_only<T>(emulated());
  check_minus_infinity_is_an_impossible_token<T>(emulated());
  check_smoothing_makes_a_row_with_an_impossible_token_infinite<T>(emulated());
  check_a_soft_cap_bounds_any_logit<T>(emulated());
  check_a_nan_among_the_logits_gives_a_nan_loss<T>(emulated());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(dlogits_may_be_logits, T, UpToFloat) {
  CrossEntropyTensors<T> t({20, 2100});
  t.options = option_sets.back();
  t.save_lse();
  const auto naive = t.template backward<naive_t<T>, T>();
  Impl::CrossEntropyBackward problem = t.backward_problem();
  problem.dlogits = problem.logits;
  test_kernels(emulated().backward, problem, {&t.logits},
               [&](const std::string&) { check_close("dlogits", t.logits, naive); });
}

BOOST_AUTO_TEST_CASE(refusals) {
  const auto [forward, backward] = emulated();
  CrossEntropyTensors<double> doubles({2, 8});
  BOOST_TEST(forward[0].reject(doubles.forward_problem()) ==
             "logits are stored as f64, but it supports only f32, bf16 and f16");
  BOOST_TEST(backward[0].reject(doubles.backward_problem()) ==
             "logits are stored as f64, but it supports only f32, bf16 and f16");
  CrossEntropyTensors<bf16> t({2, 8});
  BOOST_TEST(backward[0].reject(t.backward_problem()).empty());
  t.dlogits = TestTensor<Exec, bf16>({2, 8}, Rows::packed);
  BOOST_TEST(backward[0].reject(t.backward_problem()) ==
             "rows of logits and dlogits are not equally aligned with respect to 16 bytes");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
