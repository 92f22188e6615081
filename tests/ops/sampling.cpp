// SPDX-License-Identifier: MIT
#include "kformer/ops/sampling.hpp"

#include "ops/sampling_run.hpp"
#include "support/draws.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(sampling)

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
using Set = std::vector<int>;

const std::vector<SamplingOptions> rules{{.temperature = 0},
                                         {},
                                         {.temperature = 0.7, .seed = 3},
                                         {.top_k = 5},
                                         {.top_p = 0.6, .first_stream = std::int64_t{1} << 40},
                                         {.min_p = 0.2},
                                         {.repetition_penalty = 1.3},
                                         {.temperature = 0, .repetition_penalty = 1.7},
                                         {.temperature = 1.5,
                                          .top_k = 12,
                                          .top_p = 0.9,
                                          .min_p = 0.05,
                                          .repetition_penalty = 0.8,
                                          .seed = 0xFEDCBA9876543210}};

template <class T>
void check_against_reference(SamplingTensors<T>& t, const SamplingOptions& options) {
  const auto expect = [&]<class Real>(Real) {
    return ref::sample<compute_t<T>, Real>(t.logits.template read<double>(), t.history.template read<double>(),
                                           t.lengths.template read<double>(),
                                           t.positions.template read<double>(), options);
  };
  const auto expected = expect(naive_t<T>());
  test_every_kernel(t.problem(options), {&t.tokens, &t.log_probabilities}, [&](const std::string&) {
    const auto tokens = t.tokens.template read<double>().values();
    for (std::size_t row = 0; row < tokens.size(); ++row) BOOST_TEST(tokens[row] == expected.tokens[row]);
    check_close("log_probabilities", t.log_probabilities, expected.log_probabilities);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(tokens_are_those_of_the_oracle, T, Scalars) {
  std::mt19937 generator(20260601);
  constexpr std::int64_t shapes[][3] = {{1, 1, 1},      {7, 5, 4}, {33, 17, 9},
                                        {16, 1025, 40}, {0, 5, 2}, {3, 0, 2}};
  for (const auto& [rows, vocabulary, capacity] : shapes) {
    SamplingTensors<T> t{rows, vocabulary, capacity};
    for (const SamplingOptions& options : rules) {
      t.randomise(generator, 3);
      check_against_reference(t, options);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(hostile_rows_are_those_of_the_oracle, T, Scalars) {
  constexpr std::int64_t vocabulary = 9;
  const std::vector<std::vector<double>> rows{
      {nan, nan, nan, nan, nan, nan, nan, nan, nan},
      {-infinity, -infinity, -infinity, -infinity, -infinity, -infinity, -infinity, -infinity, -infinity},
      {nan, -infinity, -3, nan, -infinity, nan, nan, nan, nan},
      {infinity, 0, infinity, 1, 2, nan, -infinity, 60000, 3},
      {0.0, -0.0, 0, 0, -0.0, 0, 0, 0, 0},
      {-60000, -60000, -59000, nan, -60000, -60000, -60000, -60000, -60000},
      {80, -80, 80, -80, 80, -80, 79, 0, 80},
      {5, 5, 5, 5, 5, 5, 5, 5, 5}};
  SamplingTensors<T> t{static_cast<std::int64_t>(rows.size()), vocabulary, 3};
  std::mt19937 generator(7);
  for (const SamplingOptions& options : rules) {
    t.randomise(generator, 1);
    t.logits.fill(
        [&](std::size_t i) { return T(static_cast<compute_t<T>>(rows[i / vocabulary][i % vocabulary])); });
    check_against_reference(t, options);
  }
}

BOOST_AUTO_TEST_CASE(greedy_takes_the_first_of_equal_maxima) {
  for (const auto& row : std::vector<std::vector<double>>{{1, 7, 7, 3, 7},
                                                          {nan, infinity, 3, infinity, infinity},
                                                          {-1, 0.0, -0.0, 0, -2},
                                                          {-infinity, -9, -9, nan, -9}})
    BOOST_TEST(draws(row, 3, {.temperature = 0}) == (Set{1, 1, 1}));
  BOOST_TEST(draws({-0.0, 0.0}, 1, {.temperature = 0}) == (Set{0}));
  BOOST_TEST(draws({nan, -infinity}, 2, {.temperature = 0}) == (Set{-1, -1}));
  BOOST_TEST(draws({nan, -infinity}, 2, {}) == (Set{-1, -1}));
}

BOOST_AUTO_TEST_CASE(filters_leave_exact_sets) {
  const std::vector<double> row{std::log(0.1), std::log(0.4), std::log(0.05), std::log(0.25), std::log(0.2)};
  BOOST_TEST(drawn_set(row, {}) == (Set{0, 1, 2, 3, 4}));
  BOOST_TEST(drawn_set(row, {.top_k = 1}) == (Set{1}));
  BOOST_TEST(drawn_set(row, {.top_k = 3}) == (Set{1, 3, 4}));
  BOOST_TEST(drawn_set(row, {.top_k = 99}) == (Set{0, 1, 2, 3, 4}));
  BOOST_TEST(drawn_set(row, {.top_p = 0.3}) == (Set{1}));
  BOOST_TEST(drawn_set(row, {.top_p = 0.5}) == (Set{1, 3}));
  BOOST_TEST(drawn_set(row, {.top_p = 0.9}) == (Set{0, 1, 3, 4}));
  BOOST_TEST(drawn_set(row, {.top_p = 1e-300}) == (Set{1}));
  BOOST_TEST(drawn_set(row, {.min_p = 0.3}) == (Set{1, 3, 4}));
  BOOST_TEST(drawn_set(row, {.min_p = 1}) == (Set{1}));
  // Of the three most probable, 0.4 is 47 %: a share of half needs the second as well.
  BOOST_TEST(drawn_set(row, {.top_k = 3, .top_p = 0.45}) == (Set{1}));
  BOOST_TEST(drawn_set(row, {.top_k = 3, .top_p = 0.5}) == (Set{1, 3}));
  // At temperature ½ shares are squared: 0.16 of 0.275 is 58 %.
  BOOST_TEST(drawn_set(row, {.temperature = 0.5, .top_p = 0.55}) == (Set{1}));
}

BOOST_AUTO_TEST_CASE(ties_stay_in_the_order_of_ids) {
  const std::vector<double> row{2, 5, 2, 2, 5, 2};
  BOOST_TEST(drawn_set(row, {.top_k = 1}) == (Set{1}));
  BOOST_TEST(drawn_set(row, {.top_k = 2}) == (Set{1, 4}));
  BOOST_TEST(drawn_set(row, {.temperature = 100, .top_k = 4}) == (Set{0, 1, 2, 4}));
  const std::vector<double> equal(8, 1.0);
  BOOST_TEST(drawn_set(equal, {.top_p = 0.25}) == (Set{0, 1}));
  BOOST_TEST(drawn_set(equal, {.top_p = 0.26}) == (Set{0, 1, 2}));
  BOOST_TEST(drawn_set(equal, {.min_p = 1}) == (Set{0, 1, 2, 3, 4, 5, 6, 7}));
  BOOST_TEST(drawn_set({-infinity, 3, nan, 1}, {.top_k = 3}) == (Set{1, 3}));
}

BOOST_AUTO_TEST_CASE(draws_follow_the_softmax) {
  const std::vector<double> share{0.3, 0.02, 0.25, 0.001, 0.129, 0.3};
  std::vector<double> row, hotter;
  for (const double p : share) {
    row.push_back(std::log(p) + 5);
    hotter.push_back(2 * std::log(p));
  }
  constexpr std::int64_t rows = 200'000;
  // Two temperatures whose distributions are the same; the 99.9 % quantile of χ² with 5 degrees of freedom.
  for (const auto& [logits, temperature] : {std::pair{row, 1.0}, std::pair{hotter, 2.0}}) {
    const auto count = counts(logits, rows, {.temperature = temperature, .seed = 11});
    double chi_squared = 0;
    for (std::size_t v = 0; v < share.size(); ++v)
      chi_squared += std::pow(count[v] - share[v] * rows, 2) / (share[v] * rows);
    BOOST_TEST(chi_squared < 20.5);
  }
}

/// Every kernel chooses the tokens `expected` as the most probable ones.
void check_greedy(SamplingTensors<float>& t, double penalty, const std::vector<double>& expected) {
  const SamplingOptions options{.temperature = 0, .repetition_penalty = penalty};
  test_every_kernel(t.problem(options), {&t.tokens, &t.log_probabilities},
                    [&](const std::string&) { BOOST_TEST(t.tokens.read<double>().values() == expected); });
}

BOOST_AUTO_TEST_CASE(penalty_counts_each_token_once) {
  SamplingTensors<float> t{1, 4, 6};
  const float logits[] = {4, 3, -1, -2};
  const std::int32_t history[] = {0, 0, 2, 0, 7, -1};
  t.logits.fill([&](std::size_t i) { return logits[i]; });
  t.history.fill([&](std::size_t i) { return history[i]; });
  t.lengths.fill([](std::size_t) { return 6; });
  check_greedy(t, 1.3, {0});  // 4 / 1.3 = 3.08, and 4 / 1.3² would be below 3
  check_greedy(t, 1.4, {1});
}

// Numbers that were computed by hand.
BOOST_AUTO_TEST_CASE(penalty_lowers_positive_and_negative_logits) {
  SamplingTensors<float> t{2, 3, 1};
  const float logits[] = {-2, -2.5, -9, 2, 1.5, -9};
  t.logits.fill([&](std::size_t i) { return logits[i]; });
  t.history.fill([](std::size_t) { return 0; });
  t.lengths.fill([](std::size_t) { return 1; });
  check_greedy(t, 1.2, {0, 0});  // −2 · 1.2 = −2.4, 2 / 1.2 = 1.67
  check_greedy(t, 1.3, {1, 0});  // −2 · 1.3 = −2.6, 2 / 1.3 = 1.54
  check_greedy(t, 1.4, {1, 1});  // −2 · 1.4 = −2.8, 2 / 1.4 = 1.43
}

BOOST_AUTO_TEST_CASE(seeds_streams_and_positions_decide_the_draw) {
  const std::vector<double> row(1000, 0.0);
  const auto first = draws(row, 8, {.seed = 5});
  BOOST_TEST(draws(row, 8, {.seed = 5}) == first);
  BOOST_TEST(draws(row, 8, {.seed = 6}) != first);
  // The second half of a batch alone, under its streams.
  const auto second = draws(row, 4, {.seed = 5, .first_stream = 4});
  BOOST_TEST(second == std::vector<std::int32_t>(first.begin() + 4, first.end()));
  SamplingTensors<double> t{2, 1000, 0};
  t.logits.fill([](std::size_t) { return 0; });
  const auto at = [&](std::int32_t position) {
    t.positions.fill([&](std::size_t) { return position; });
    return ref::sample<double, double>(t.logits.read<double>(), {}, {}, t.positions.read<double>(), {}).tokens;
  };
  BOOST_TEST(at(3) == at(3));
  BOOST_TEST(at(3) != at(4));
}

BOOST_AUTO_TEST_CASE(random_numbers_are_those_of_the_paper) {
  // The known answers of Random123 for Philox-4x32-10.
  const auto words = [](const Impl::PhiloxBlock& b) { return std::vector<std::uint32_t>(b.word, b.word + 4); };
  BOOST_TEST(words(Impl::philox({{0, 0, 0, 0}}, 0)) ==
             (std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  BOOST_TEST(words(Impl::philox({{~0u, ~0u, ~0u, ~0u}}, ~std::uint64_t{0})) ==
             (std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  BOOST_TEST(Impl::scaled_below(10, ~std::uint64_t{0}) == 9);
  BOOST_TEST(Impl::scaled_below(~std::uint64_t{0}, ~std::uint64_t{0}) == ~std::uint64_t{1});
  BOOST_TEST(Impl::scaled_below(std::uint64_t{3} << 40, std::uint64_t{1} << 63) == std::uint64_t{3} << 39);
}

template <class T>
void check_log_probabilities(SamplingTensors<T>& t) {
  const auto naive = ref::token_log_probabilities<compute_t<T>, naive_t<T>>(t.logits.template read<double>(),
                                                                            t.tokens.template read<double>());
  test_every_kernel(Impl::TokenLogProbabilities{t.logits.ref(), t.tokens.ref(), t.log_probabilities.ref()},
                    {&t.log_probabilities},
                    [&](const std::string&) { check_close("log_probabilities", t.log_probabilities, naive); });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(log_probabilities_match_the_oracle, T, Scalars) {
  std::mt19937 generator(20260602);
  for (const std::int64_t vocabulary : {1, 5, 33, 1025}) {
    constexpr std::int64_t rows = 6;
    SamplingTensors<T> t{rows, vocabulary, 0};
    t.randomise(generator, 4);
    const std::int32_t ids[rows] = {0,
                                    static_cast<std::int32_t>(vocabulary) - 1,
                                    -1,
                                    static_cast<std::int32_t>(vocabulary),
                                    std::numeric_limits<std::int32_t>::min(),
                                    0};
    t.tokens.fill([&](std::size_t i) { return ids[i]; });
    check_log_probabilities(t);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const std::int64_t vocabulary = draw.any(1, draw.one_in(8) ? 1500 : 150);
    SamplingTensors<T> t{draw.any(1, 20), vocabulary, 0};
    std::mt19937 generator(draw.seed());
    t.randomise(generator, draw.spread());
    t.tokens.fill([&](std::size_t) { return static_cast<std::int32_t>(draw.any(0, vocabulary - 1)); });
    check_log_probabilities(t);
  });
}

BOOST_AUTO_TEST_CASE(log_probabilities_by_hand) {
  const std::vector<double> half{std::log(0.5), std::log(0.25), std::log(0.25), -infinity};
  HostTensor<double> logits({1, 4}), ids({1});
  for (int v = 0; v < 4; ++v) logits(0, v) = half[v] + 100;
  const auto at = [&](double id) {
    ids(0) = id;
    return ref::token_log_probabilities<double, double>(logits, ids)(0);
  };
  BOOST_TEST(std::abs(at(0) - std::log(0.5)) < 1e-13);
  BOOST_TEST(std::abs(at(2) - std::log(0.25)) < 1e-13);
  BOOST_TEST(at(3) == -infinity);
  BOOST_TEST(std::isnan(at(4)));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
