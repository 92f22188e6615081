// SPDX-License-Identifier: MIT
// States in 8 bits per number: the maps, their codes, and what they do to training.
#include <cmath>

#include "kformer/ops/adamw.hpp"
#include "ops/adamw_state_cases.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(adamw_states)

using Signs = std::tuple<Sign<MapSign::with>, Sign<MapSign::without>>;

BOOST_AUTO_TEST_CASE_TEMPLATE(maps_ascend_and_codes_survive_the_round_trip, S, Signs) {
  const DynamicMap map = Impl::dynamic_map<S::value>();
  for (int code = 0; code < 256; ++code) {
    if (code > 0) BOOST_TEST(map.value[code - 1] < map.value[code]);
    BOOST_TEST(Impl::dynamic_code(map, map.value[code]) == code);
    BOOST_TEST(ref::nearest_code<S::value>(map.value[code]) == code);
  }
}

// The formula of the documentation, in another order of operations.
BOOST_AUTO_TEST_CASE(maps_have_the_values_of_the_formula) {
  const DynamicMap with = Impl::dynamic_map<MapSign::with>(), without = Impl::dynamic_map<MapSign::without>();
  const auto value = [](int n, int lowest) {
    const int k = static_cast<int>(std::log2(n));
    const long double middle = (n - std::pow(2.0L, k) + 0.5L) / std::pow(2.0L, k);
    return static_cast<float>(std::pow(10.0L, k - lowest) * (0.1L + 0.9L * middle));
  };
  for (int n = 1; n < 128; ++n) {
    BOOST_TEST(with.value[127 - n] == -value(n, 6));
    if (n < 128 && 127 + n < 255) BOOST_TEST(with.value[127 + n] == value(n, 6));
  }
  for (int code = 1; code < 255; ++code) BOOST_TEST(without.value[code] == value(code + 1, 7));
  BOOST_TEST(with.value[127] == 0);
  BOOST_TEST(without.value[0] == 0);
  BOOST_TEST(with.value[255] == 1);
  BOOST_TEST(without.value[255] == 1);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(codes_are_those_of_the_nearest_values, S, Signs) {
  const DynamicMap map = Impl::dynamic_map<S::value>();
  const auto check = [&](float x) {
    BOOST_TEST(Impl::dynamic_code(map, x) == ref::nearest_code<S::value>(x), "at " << x);
  };
  for (int code = 0; code < 255; ++code)
    for (float x : {map.border[code], (map.value[code] + map.value[code + 1]) / 2})
      for (const float neighbour : {std::nextafter(x, -2.0f), x, std::nextafter(x, 2.0f)}) check(neighbour);
  for (const float x : {0.0f, -0.0f, 1.0f, 1e-7f, 1e-30f, std::numeric_limits<float>::denorm_min()}) check(x);
  std::mt19937 generator(20260105);
  std::uniform_real_distribution<float> uniform(S::value == MapSign::with ? -1.0f : 0.0f, 1.0f);
  for (int i = 0; i < 10000; ++i) check(uniform(generator));
}

BOOST_AUTO_TEST_CASE(a_positive_quotient_is_never_coded_as_zero_where_it_divides) {
  const DynamicMap map = Impl::dynamic_map<MapSign::without>();
  BOOST_TEST(Impl::dynamic_code(map, std::numeric_limits<float>::denorm_min()) == 1);
  BOOST_TEST(Impl::dynamic_code(map, 0.0f) == 0);
}

AdamWKernels every_step() { return {kernels<Impl::AdamW, Exec>(), {}}; }

BOOST_AUTO_TEST_CASE(kernels_code_what_the_reference_codes) { check_codes_of_many_magnitudes(every_step()); }
BOOST_AUTO_TEST_CASE(kernels_break_ties_as_specified) { check_ties(every_step()); }
BOOST_AUTO_TEST_CASE(a_block_of_zeros_has_scale_zero_and_stays_zero) { check_blocks_of_zeros(every_step()); }
BOOST_AUTO_TEST_CASE(nothing_behind_the_last_element_counts_for_the_scale) {
  check_nothing_behind_the_last_element_counts(every_step());
}
BOOST_AUTO_TEST_CASE(numbers_that_are_not_finite_show_in_the_scale) {
  check_numbers_that_are_not_finite(every_step());
}

// What a number loses is at most half the gap between the values around it, times the scale.
BOOST_AUTO_TEST_CASE(the_error_is_at_most_half_a_gap) {
  std::mt19937 generator(20260107);
  std::normal_distribution<double> normal;
  HostTensor<double> t({1000});
  for (double& x : t.values()) x = static_cast<float>(normal(generator));
  const auto coded = ref::encode<double, MapSign::with>(t);
  const auto back = ref::decode<double, MapSign::with>(coded);
  for (std::size_t i = 0; i < t.values().size(); ++i) {
    const int code = static_cast<int>(coded.codes.values()[i]);
    const double scale = coded.scales.values()[i / adamw_block], x = t.values()[i];
    const auto value = [](int c) { return double(Impl::dynamic_value<MapSign::with>(c)); };
    const double below = code > 0 ? value(code) - value(code - 1) : 2 * (1 + value(code));
    const double above = code < 255 ? value(code + 1) - value(code) : 0;
    // The quotient is rounded to float before it is coded.
    const double rounding = std::ldexp(std::abs(x), -24);
    BOOST_TEST(x - back.values()[i] <= above / 2 * scale + rounding);
    BOOST_TEST(back.values()[i] - x <= below / 2 * scale + rounding);
  }
}

/// Σ λ_i·(w_i − a_i)² / 2 after `steps` steps from w = 0, and before.
struct Losses {
  double first, last;
};
template <class T>
Losses minimise(States states, int steps) {
  const std::int64_t n = 1000;
  AdamWModel<T> model(states, {{n}});
  auto& a = model.arrays[0];
  std::mt19937 generator(20260108);
  std::normal_distribution<double> normal;
  std::vector<double> target(n), curvature(n);
  for (double& x : target) x = normal(generator);
  for (double& x : curvature) x = std::exp(normal(generator));
  auto& exact = [&]() -> auto& {
    if constexpr (sizeof(T) == 2)
      return a.master;
    else
      return a.weight;
  }();
  exact.fill([](std::size_t) { return 0.0f; });
  if (states == States::coded)
    for (auto* scale : {&a.m_scale, &a.v_scale}) scale->fill([](std::size_t) { return 0.0f; });
  else
    for (auto* state : {&a.m, &a.v}) state->fill([](std::size_t) { return 0.0f; });
  const auto loss = [&] {
    const auto w = exact.template read<double>().values();
    double sum = 0;
    for (std::size_t i = 0; i < w.size(); ++i) sum += curvature[i] * std::pow(w[i] - target[i], 2) / 2;
    return sum;
  };
  const double first = loss();
  for (int step = 1; step <= steps; ++step) {
    const auto w = exact.template read<double>().values();
    a.gradient.fill([&](std::size_t i) { return float(curvature[i] * (w[i] - target[i])); });
    const double rate = 0.05 * (1 - double(step - 1) / steps);
    const AdamWParameter parameter = [&] {
      AdamWParameter p = a.parameter();
      p.weight_decay = 0;
      return p;
    }();
    kformer::adamw(Exec(), std::span(&parameter, 1), {.learning_rate = rate, .beta2 = 0.99, .step = step});
    Exec().fence("kformer::Testing::adamw");
  }
  return {first, loss()};
}

BOOST_AUTO_TEST_CASE(training_converges_as_with_float_states) {
  const Losses plain = minimise<float>(States::plain, 400), coded = minimise<float>(States::coded, 400),
               half = minimise<bf16>(States::coded, 400);
  BOOST_TEST_MESSAGE("loss " << plain.first << ": float states " << plain.last << ", 8-bit " << coded.last
                             << ", 8-bit with bf16 weights " << half.last);
  BOOST_TEST(plain.last < 1e-3 * plain.first);
  BOOST_TEST(coded.last < 1e-3 * coded.first);
  BOOST_TEST(half.last == coded.last);  // the step is made on the master weight
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
