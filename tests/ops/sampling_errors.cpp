// SPDX-License-Identifier: MIT
#include "ops/sampling_run.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(sampling_errors)

const std::string operands =
    "logits[2,5] history[2,3] history_lengths[2] positions[2] tokens[2] log_probabilities[2]";

BOOST_AUTO_TEST_CASE(options_out_of_range_are_named) {
  SamplingTensors<float> t{2, 5, 3};
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const auto check = [&](const SamplingOptions& options, const std::string& sentence) {
    check_error<NotSupported>([&] { t.problem(options).check(); }, "kformer::sample: " + sentence);
  };
  check({.temperature = -1}, "temperature is -1.000000; it must be finite and not negative");
  check({.temperature = nan}, "temperature is nan; it must be finite and not negative");
  check({.temperature = std::numeric_limits<double>::infinity()},
        "temperature is inf; it must be finite and not negative");
  check({.top_k = -1}, "top_k is -1; it must not be negative");
  check({.top_p = 1.5}, "top_p is 1.500000; it must lie in (0, 1]");
  check({.top_p = 0}, "top_p is 0.000000; it must lie in (0, 1]");
  check({.top_p = nan}, "top_p is nan; it must lie in (0, 1]");
  check({.min_p = -0.1}, "min_p is -0.100000; it must lie in [0, 1]");
  check({.min_p = 1.5}, "min_p is 1.500000; it must lie in [0, 1]");
  check({.repetition_penalty = 0}, "repetition_penalty is 0; it must be finite and positive as f32");
  check({.repetition_penalty = nan}, "repetition_penalty is nan; it must be finite and positive as f32");
  check({.repetition_penalty = 1e39}, "repetition_penalty is 1e+39; it must be finite and positive as f32");
  check({.repetition_penalty = 1e-46}, "repetition_penalty is 1e-46; it must be finite and positive as f32");
  check({.first_stream = -2}, "first_stream is -2; it must not be negative");
  SamplingTensors<double> wide{2, 5, 3};
  BOOST_CHECK_NO_THROW(wide.problem({.repetition_penalty = 1e39}).check());
}

// Sums of 2²³ weights of 40 bits have 63 bits.
BOOST_AUTO_TEST_CASE(a_vocabulary_whose_sums_would_not_fit_is_refused) {
  SamplingTensors<float> t{1, 5, 3};
  auto problem = t.problem({});
  problem.logits.data = nullptr;  // what it has is too small
  problem.logits.extent[1] = std::int64_t(1) << 23;
  BOOST_CHECK_NO_THROW(problem.check());
  ++problem.logits.extent[1];
  check_error<NotSupported>([&] { problem.check(); },
                            "kformer::sample: the vocabulary is larger than 8388608 tokens");
}

BOOST_AUTO_TEST_CASE(operands_that_do_not_fit_are_named) {
  SamplingTensors<bf16> t{2, 5, 3}, other{3, 5, 3};
  auto problem = t.problem({});
  problem.tokens = other.tokens.ref();
  check_error<DimensionMismatch>([&] { problem.check(); },
                                 "kformer::sample: extents do not match: logits[2,5] history[2,3] "
                                 "history_lengths[2] positions[2] tokens[3] "
                                 "log_probabilities[2]; expected positions, tokens and log_probabilities to "
                                 "have one element per row of logits");
  problem = t.problem({});
  problem.history = other.history.ref();
  check_error<DimensionMismatch>([&] { problem.check(); },
                                 "kformer::sample: extents do not match: logits[2,5] history[3,3] "
                                 "history_lengths[2] positions[2] tokens[2] "
                                 "log_probabilities[2]; expected history to have a row, and history_lengths an "
                                 "element, per row of logits");
  problem = t.problem({});
  problem.positions = t.log_probabilities.ref();
  check_error<DimensionMismatch>([&] { problem.check(); },
                                 "kformer::sample: positions is stored as f32, expected i32: " + operands);
  check_error<DimensionMismatch>(
      [&] {
        token_log_probabilities(Exec(), t.logits.view<2>(), other.tokens.view<1>(),
                                t.log_probabilities.view<1>());
      },
      "kformer::token_log_probabilities: extents do not match: logits[2,5] ids[3] log_probabilities[2]; "
      "expected ids "
      "and log_probabilities to have one element per row of logits");
}

BOOST_AUTO_TEST_CASE(workspace_is_asked_for_where_it_is_needed) {
  const auto bytes = [](bool with_history, const SamplingOptions& options) {
    ForcedKernels kokkos("sampling:kokkos");
    return sample_workspace_bytes<float>(Exec(), 3, 100, with_history, options);
  };
  BOOST_TEST(bytes(true, {.temperature = 0}) == 0u);
  BOOST_TEST(bytes(false, {.temperature = 0, .repetition_penalty = 2}) == 0u);
  BOOST_TEST(bytes(true, {.temperature = 0, .repetition_penalty = 2}) == 2400u);
  BOOST_TEST(bytes(false, {}) == 2400u);
  check_error<NotSupported>([&] { bytes(false, {.top_k = -1}); },
                            "kformer::sample: top_k is -1; it must not be negative");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
