// SPDX-License-Identifier: MIT
// Flash against standard attention: which cases belong together, and from which length on flash is faster.
#include "attention/comparison.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "attention/attention_results.hpp"

namespace {

using namespace kformer;
using namespace kformer::drivers;

constexpr auto standard = AttentionAlgorithm::standard, flash = AttentionAlgorithm::flash;

// Of samples that are long enough to be none of noise.
AttentionResult result(std::int64_t seq_len, AttentionAlgorithm impl, double seconds) {
  AttentionResult r;
  r.point.execution_space = "openmp";
  r.point.dtype = DType::f32;
  r.point.num_attention_heads = 4;
  r.point.num_key_value_heads = 2;
  r.point.head_dim = r.point.v_head_dim = 16;
  r.point.batch = 3;
  r.point.seq_len = seq_len;
  r.point.impl = impl;
  r.samples.seconds = {seconds, seconds};
  r.peak[static_cast<std::size_t>(MemoryClass::activations)] = impl == flash ? 100 : 300;
  r.peak[static_cast<std::size_t>(MemoryClass::workspace)] = impl == flash ? 50 : 100;
  r.peak[static_cast<std::size_t>(MemoryClass::weights)] = 1000;
  return r;
}

// The second of each pair is how many times faster flash is.
Comparison compared(const std::vector<std::pair<std::int64_t, double>>& speedups) {
  Comparison comparison;
  for (const auto& [seq_len, speedup] : speedups) {
    comparison.add(result(seq_len, standard, speedup));
    comparison.add(result(seq_len, flash, 1));
  }
  return comparison;
}

std::int64_t crossover_of(const Comparison& comparison) {
  return comparison.configurations().at(0).crossover().value_or(-1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(comparison)

BOOST_AUTO_TEST_CASE(flash_must_be_faster_at_all_longer_lengths) {
  BOOST_TEST(crossover_of(compared({{8, 2}, {16, 3}, {32, 4}})) == 8);
  BOOST_TEST(crossover_of(compared({{8, 0.5}, {16, 3}, {32, 4}})) == 16);
  BOOST_TEST(crossover_of(compared({{8, 2}, {16, 0.5}, {32, 4}})) == 32);
  BOOST_TEST(crossover_of(compared({{8, 2}, {16, 3}, {32, 1}})) == -1);
}

BOOST_AUTO_TEST_CASE(lengths_that_tell_nothing_are_passed_over) {
  Comparison comparison = compared({{8, 2}, {32, 4}});
  comparison.add(result(16, standard, 0.25));
  BOOST_TEST(crossover_of(comparison) == 8);
  BOOST_TEST(comparison.lengths() == (std::vector<std::int64_t>{8, 16, 32}), boost::test_tools::per_element());
  // One of the two is noise.
  AttentionResult noise = result(16, flash, 1);
  noise.core_wait_share = 1;
  comparison.add(noise);
  comparison.add(result(64, flash, 1));
  BOOST_TEST(crossover_of(comparison) == 8);
  BOOST_TEST(std::isnan(comparison.configurations()[0].lengths.at(16).speedup()));
}

BOOST_AUTO_TEST_CASE(noise_stays_noise_whichever_comes_last) {
  Comparison comparison;
  AttentionResult noise = result(8, standard, 2);
  noise.core_wait_share = 1;
  comparison.add(noise);
  comparison.add(result(8, flash, 1));
  BOOST_TEST(comparison.configurations()[0].lengths.at(8).noise);
  BOOST_TEST(crossover_of(comparison) == -1);
}

BOOST_AUTO_TEST_CASE(cases_that_differ_in_more_than_length_and_algorithm_are_others) {
  Comparison comparison;
  BOOST_TEST(comparison.empty());
  comparison.add(result(8, standard, 2));
  AttentionResult other = result(8, flash, 1);
  other.point.causal = true;
  comparison.add(other);
  BOOST_TEST(comparison.configurations().size() == 2u);
  BOOST_TEST(comparison.empty());  // nothing was timed both ways
  AttentionResult untimed = result(8, flash, 1);
  untimed.samples.seconds.clear();
  comparison.add(untimed);
  BOOST_TEST(comparison.empty());
  comparison.add(result(8, flash, 1));
  BOOST_TEST(!comparison.empty());
}

BOOST_AUTO_TEST_CASE(ratios_are_of_medians_and_of_activations_with_workspace) {
  const ComparedLength length = compared({{8, 2.5}}).configurations().at(0).lengths.at(8);
  BOOST_TEST(length.speedup() == 2.5);
  BOOST_TEST(length.memory_ratio() == 150.0 / 400);
}

BOOST_AUTO_TEST_CASE(a_comparison_in_words) {
  Comparison comparison = compared({{8, 0.5}, {16, 4}});
  BOOST_TEST(comparison_text(comparison) ==
             "flash against standard attention:\n"
             "  openmp f32 forward heads 4/2 dim 16 batch 3 full: faster from seq_len 16 on\n"
             "    seq_len       8:   0.50 x the speed, memory -62.5 %\n"
             "    seq_len      16:   4.00 x the speed, memory -62.5 %\n");
  comparison = compared({{8, 4}, {16, 0.5}});
  BOOST_TEST(comparison_text(comparison).find(": slower at the longest length measured\n") !=
             std::string::npos);
  AttentionCase point = result(8, flash, 1).point;
  point.causal = true;
  point.window = 7;
  point.q_len = 1;
  point.v_head_dim = 8;
  BOOST_TEST(configuration_text(point) == "heads 4/2 dim 16/8 batch 3 causal window 7 q_len 1");
}

BOOST_AUTO_TEST_SUITE_END()
