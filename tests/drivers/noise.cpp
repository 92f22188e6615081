// SPDX-License-Identifier: MIT
#include "sweep/noise.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <thread>

#include "io/scratch_directory.hpp"
#include "measure/process/core_wait.hpp"
#include "measure/timing.hpp"
#include "sweep/measurement_report.hpp"

namespace {

using namespace kformer::drivers;

Measurement timed(std::vector<double> seconds, double limits_change = 0) {
  Measurement m;
  m.samples.seconds = std::move(seconds);
  m.limits = {1e9, 1e9};
  m.limits_change = limits_change;
  return m;
}

/// An execution space that is always idle.
struct Idle {
  void fence(const char*) const {}
};

}  // namespace

BOOST_AUTO_TEST_SUITE(noise)

// Where other programs delay a call by which the number of calls of a sample is chosen, the sample is shorter: not each time.
BOOST_AUTO_TEST_CASE(samples_last_as_long_as_they_must_after_a_slow_first_call) {
  const auto never = [] { return false; };
  int calls = 0;
  const auto launch = [&] { std::this_thread::sleep_for(std::chrono::milliseconds(calls++ == 0 ? 20 : 1)); };
  double longest = 0;
  for (int attempt = 0; attempt < 10 && longest <= 0.0099; ++attempt) {
    calls = 0;
    const double slow = kformer::measure::seconds_of(Idle(), launch);
    const auto samples =
        kformer::measure::sample(Idle(), {.repeats = 3, .min_time_s = 0.01}, slow, launch, never);
    BOOST_TEST(samples.seconds.size() == 3u);
    longest = samples.seconds.front() * static_cast<double>(samples.inner_iterations);
  }
  BOOST_TEST(longest > 0.0099);
  const auto cut =
      kformer::measure::sample(Idle(), {.repeats = 3, .min_time_s = 10, .max_time_s = 0.001}, 0, launch, never);
  BOOST_TEST(cut.seconds.size() == 1u);
}

BOOST_AUTO_TEST_CASE(samples_that_scatter_are_noise) {
  BOOST_TEST(!noisy(timed({1.0, 1.01, 1.02, 1.0, 0.99})));
  BOOST_TEST(noisy(timed({1.0, 1.01, 1.5, 1.6, 0.99})));
  BOOST_TEST(std::fabs(spread_of(timed({1, 2, 3})) - 0.8) < 1e-12);
}

BOOST_AUTO_TEST_CASE(one_sample_does_not_tell) {
  BOOST_TEST(std::isnan(spread_of(timed({9}))));
  BOOST_TEST(!noisy(timed({9})));
  BOOST_TEST(noisy(timed({0.01})));
  BOOST_TEST(!noisy(timed({})));
  BOOST_TEST(noisy(timed({1, 9})));
}

BOOST_AUTO_TEST_CASE(limits_that_change_during_a_case_are_noise) {
  BOOST_TEST(noisy(timed({1, 1, 1}, 0.3)));
  BOOST_TEST(!noisy(timed({1, 1, 1}, 0.2)));
  BOOST_TEST(change_between({100, 50}, {80, 50}) == 0.2);
  BOOST_TEST(change_between({100, 20}, {80, 50}) == 0.6);
  BOOST_TEST(change_between({0, 0}, {0, 0}) == 0);
}

BOOST_AUTO_TEST_CASE(threads_that_waited_for_cores_are_noise) {
  // The samples of a steady load do not scatter.
  const auto waited = [](double share) {
    Measurement m = timed({1, 1, 1});
    m.core_wait_share = share;
    return noisy(m);
  };
  BOOST_TEST(!waited(0));
  BOOST_TEST(!waited(0.2));
  BOOST_TEST(waited(0.3));
  BOOST_TEST(waited(7));
  BOOST_TEST(!waited(std::nan("")));
}

BOOST_AUTO_TEST_CASE(the_waits_of_all_threads_count) {
  using kformer::Testing::put_contents;
  const kformer::Testing::ScratchDirectory threads;
  for (const char* thread : {"10", "11", "12"}) std::filesystem::create_directory(threads / thread);
  BOOST_TEST(!kformer::measure::core_wait(threads.path()).has_value());
  BOOST_TEST(!kformer::measure::core_wait(threads / "none").has_value());
  put_contents(threads / "10/schedstat", "0 0 0\n");
  BOOST_TEST(!kformer::measure::core_wait(threads.path()).has_value());
  // The third one has just ended.
  put_contents(threads / "10/schedstat", "5000000000 2000000000 30\n");
  put_contents(threads / "11/schedstat", "4000000000 500000000 20\n");
  BOOST_TEST(std::fabs(kformer::measure::core_wait(threads.path()).value() - 2.5) < 1e-12);
}

BOOST_AUTO_TEST_CASE(waits_are_relative_to_the_time_of_the_samples) {
  using kformer::measure::core_wait_share;
  BOOST_TEST(core_wait_share(2.0, 2.5, 4) == 0.125);
  BOOST_TEST(core_wait_share(2.0, 10.0, 4) == 2);
  BOOST_TEST(core_wait_share(2.0, 1.0, 4) == 0);  // a thread has ended
  BOOST_TEST(std::isnan(core_wait_share(std::nullopt, std::nullopt, 4)));
  BOOST_TEST(std::isnan(core_wait_share(2.0, 2.5, 0)));
}

BOOST_AUTO_TEST_CASE(a_noisy_case_is_marked) {
  const auto shown = [](const Measurement& m) { return measured_values(m).at(1).shown; };
  BOOST_TEST(shown(timed({1, 2, 3})) == "! 80 %");
  BOOST_TEST(shown(timed({1, 1, 1})) == "0 %");
  BOOST_TEST(shown(timed({2})) == "-");
}

BOOST_AUTO_TEST_CASE(times_have_three_digits) {
  const auto shown = [](double seconds) { return measured_values(timed({seconds})).front().shown; };
  for (const auto& [seconds, text] : {std::pair{123.4, "123 s"},
                                      {12.34, "12.3 s"},
                                      {0.9996, "1.00 s"},
                                      {0.9994, "999 ms"},
                                      {0.09996, "100 ms"},
                                      {9.996e-3, "10.0 ms"},
                                      {9.994e-3, "9.99 ms"},
                                      {1.5e-6, "1.50 us"},
                                      {2.5e-9, "2.50 ns"},
                                      {4e-12, "0.00 ns"}})
    BOOST_TEST(shown(seconds) == text);
  BOOST_TEST(measured_values(timed({})).front().shown == "-");
}

// The columns are in the order of measured_columns().
BOOST_AUTO_TEST_CASE(a_row_of_a_report_has_what_was_measured) {
  Measurement m = timed({2, 1, 3});
  m.flops = 4e9;
  m.bytes_min = 1e9;
  m.limits = {4e9, 2.5e9};
  m.peak_total = std::size_t(3) << 20;
  m.max_rel_err = 1.26e-7;
  m.status = CaseStatus::ok;
  const auto values = measured_values(m);
  const auto number = [&](std::size_t column) { return std::get<double>(values.at(column).value); };
  BOOST_TEST(values.size() == measured_columns().size());
  BOOST_TEST(number(0) == 2);
  BOOST_TEST(std::fabs(number(2) - 1.2) < 1e-12);
  BOOST_TEST(std::fabs(number(3) - 2.8) < 1e-12);
  BOOST_TEST((values[4].shown == "2.0" && number(4) == 2e9));
  BOOST_TEST((values[5].shown == "50 %" && number(5) == 0.5));
  BOOST_TEST(std::get<std::int64_t>(values[6].value) == 1);
  BOOST_TEST(values[7].shown == "3.00 MiB");
  BOOST_TEST(values[8].shown == "1.3e-07");
  BOOST_TEST((values[9].shown == "ok" && values[9].tone == Tone::good));
  m.bytes_min = 4e9;
  BOOST_TEST(measured_values(m)[5].shown == "80 %");
  for (const CaseStatus bad : {CaseStatus::failed_check, CaseStatus::error}) {
    m.status = bad;
    BOOST_TEST((measured_values(m)[9].tone == Tone::bad));
  }
  m.status = CaseStatus::out_of_memory;
  BOOST_TEST((measured_values(m)[9].tone == Tone::doubtful));
}

BOOST_AUTO_TEST_CASE(a_run_says_what_disturbed_it) {
  BOOST_TEST(
      noise_text(
          {.cases = 9, .noisy_cases = 0, .load_before = 0.4, .cores = 2, .changes = {{"openmp", 0.9}}}) == "");
  BOOST_TEST(
      noise_text(
          {.cases = 9, .noisy_cases = 2, .load_before = 3.44, .cores = 2, .changes = {{"openmp", 0.5}}}) ==
      "noise: 2 of 9 cases (marked !) scatter by more than 25 %, or their limits changed by more,\n"
      "       or they have a single short sample, or their threads waited for cores that were busy\n"
      "noise: before the run others had a load of 3.4 on 2 cores\n"
      "noise: openmp has 0.50 x the multiply-adds per second that it had at the start\n"
      "noise: repeat the run on an idle machine before you trust its times\n");
  BOOST_TEST(noise_text({.changes = {{"openmp", 1.5}}}).find("1.50 x") != std::string::npos);
  BOOST_TEST(noise_text({.load_before = std::nan("")}) == "");
}

BOOST_AUTO_TEST_SUITE_END()
