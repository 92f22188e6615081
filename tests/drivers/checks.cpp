// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "measure/memory_available.hpp"
#include "sweep/check_kernels.hpp"
#include "sweep/judge.hpp"
#include "sweep/reference_runs.hpp"

namespace {

using namespace kformer::drivers;
using kformer::measure::HostArray;
using kformer::measure::HostArrays;

HostArray matrix(std::size_t rows, std::size_t cols) {
  HostArray array{{rows, cols}, std::vector<double>(rows * cols)};
  for (std::size_t i = 0; i < array.values.size(); ++i) {
    const std::size_t row = i / cols;
    array.values[i] = static_cast<double>(row);
  }
  return array;
}

/// Results of float, stored as such.
JudgedResults in_float(const HostArrays& arrays, std::size_t independent_rows = any_number_of_rows) {
  return {arrays, kformer::DType::f32, [](const std::string&) { return kformer::DType::f32; },
          independent_rows};
}

/// Its forecast has some bytes, its result four numbers.
class FourNumbers final : public Run {
 public:
  FourNumbers(kformer::Ledger& ledger, std::size_t bytes) {
    if (ledger.counts_only())
      m_block = ledger.allocate<Kokkos::HostSpace>(kformer::MemoryClass::activations, "four numbers", bytes);
  }
  void prepare(const std::function<bool()>&) override {}
  void forward() override {}
  void backward() override {}
  void fence() override {}
  kformer::measure::Samples sample(kformer::Direction, const kformer::measure::SamplingPlan&, double,
                                   const std::function<bool()>&) override {
    return {};
  }
  HostArrays results(bool, ResultRows) override { return {{"out", matrix(2, 2)}}; }
  std::vector<std::size_t> result_sizes(bool) const override { return {4}; }

 private:
  kformer::MemoryBlock<Kokkos::HostSpace> m_block;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(checks)

BOOST_AUTO_TEST_CASE(the_reference_runs_portable_kernels_unless_the_case_did) {
  const std::string tuned = reference_kernels("linear_forward:simd_avx2 rope_tables:kokkos");
  BOOST_TEST(tuned.find(",linear_forward:kokkos") != tuned.npos);
  BOOST_TEST(tuned.find(",rope_tables:reference") != tuned.npos);
  const std::string portable = reference_kernels("linear_forward:kokkos linear_backward_bias:kokkos");
  BOOST_TEST(portable.find(",linear_forward") == portable.npos);
  BOOST_TEST(portable.find(",linear_backward_bias:reference") != portable.npos);
  // The usual choice would multiply as the fused kernel does.
  const std::string mixed = reference_kernels("linear_forward:kokkos linear_swiglu_forward:simd_avx2");
  BOOST_TEST(mixed.find(",linear_forward:reference") != mixed.npos);
}

BOOST_AUTO_TEST_CASE(the_host_blas_multiplies_unless_the_case_ran_it) {
  const std::string kernels = "a:separate,linear_forward:kokkos,linear_backward_bias:kokkos";
  BOOST_TEST(with_host_blas(kernels, "linear_forward:simd_avx2") ==
             "a:separate,linear_forward:host_blas,linear_backward_bias:kokkos");
  BOOST_TEST(with_host_blas(kernels, "linear_forward:host_blas") == kernels);
}

BOOST_AUTO_TEST_CASE(portable_kernels_of_the_case_that_sum_replace_the_others) {
  const std::string ran =
      "linear_forward:kokkos linear_backward_bias:kokkos rope_tables:kokkos rope_forward:simd_avx2";
  const std::string kernels = reference_kernels(ran), own = with_own_sums(kernels, ran);
  BOOST_TEST(own.find(",linear_forward:kokkos") != own.npos);
  BOOST_TEST(own.find(",linear_backward_bias:kokkos") != own.npos);
  BOOST_TEST(own.find("linear_backward_bias:reference") == own.npos);
  BOOST_TEST(own.find(",rope_tables:reference") != own.npos);
  BOOST_TEST(own.find(",linear_backward_input:kokkos") != own.npos);
  const std::string by_blas = with_host_blas(own, ran);
  BOOST_TEST(by_blas.find(",linear_forward:kokkos") != by_blas.npos);
  BOOST_TEST(by_blas.find(",linear_backward_input:host_blas") != by_blas.npos);
  const std::string tuned = "linear_forward:simd_avx2 rope_tables:kokkos";
  BOOST_TEST(with_own_sums(reference_kernels(tuned), tuned) == reference_kernels(tuned));
}

BOOST_AUTO_TEST_CASE(kernels_are_joined_once) {
  BOOST_TEST(joined("", "a:x b:y") == "a:x b:y");
  BOOST_TEST(joined("a:x b:y", "b:y c:z") == "a:x b:y c:z");
}

BOOST_AUTO_TEST_CASE(a_kernel_on_both_sides_is_named) {
  BOOST_TEST(shared_kernels("a:x b:kokkos c:separate", "a:y b:kokkos c:separate") == "b:kokkos");
  BOOST_TEST(shared_kernels("a:xy", "a:x") == "");
  Measurement m;
  m.kernels = m.check_kernels = "a:x";
  BOOST_TEST(!independent(m));
  BOOST_TEST(m.message == "not checked: the reference would run kernels of the case: a:x");
  BOOST_TEST(has_independent_limits(m, "a:y"));
  BOOST_TEST(!has_independent_limits(m, "a:x b:x"));
  BOOST_TEST(m.message.ends_with("the tolerance would be set by kernels of the case: a:x"), m.message);
  BOOST_TEST(!has_independent_limits(m, "b:x", "b:x"));
}

BOOST_AUTO_TEST_CASE(a_check_without_memory_says_what_it_needs) {
  Measurement m;
  m.check_bytes = std::size_t(1) << 60;
  BOOST_TEST(!fits_check("serial", m));
  BOOST_TEST(m.message.find("not checked: the check needs 1048576.00 TiB, but only ") == 0u, m.message);
  m.check_held = m.check_bytes - 1;
  BOOST_TEST(fits_check("serial", m));
  // Three quarters of what is free: enough for one, not for two.
  const std::size_t free = *kformer::measure::memory_available("serial");
  m.check_bytes = free - free / 4;
  m.check_held = 0;
  BOOST_TEST(fits_check("serial", m));
  BOOST_TEST(!fits_check("serial", m, 2));
}

BOOST_AUTO_TEST_CASE(a_check_that_fails_keeps_what_was_measured) {
  Measurement m;
  m.status = CaseStatus::ok;
  m.samples.seconds = {1, 2};
  check_if_possible(m, [] { throw std::runtime_error("too much scratch"); });
  BOOST_TEST((m.status == CaseStatus::unchecked));
  BOOST_TEST(m.message == "not checked: too much scratch");
  BOOST_TEST(m.samples.seconds.size() == 2u);
  check_if_possible(m, [] { throw std::bad_alloc(); });
  BOOST_TEST(m.message.find("not checked: ") == 0u, m.message);
  BOOST_TEST(m.message.find("memory") != m.message.npos, m.message);
  check_if_possible(m, [&] { m.status = CaseStatus::ok; });
  BOOST_TEST((m.status == CaseStatus::ok));
}

BOOST_AUTO_TEST_CASE(a_check_counts_its_largest_run_and_what_earlier_ones_left) {
  ReferenceRuns runs;
  const auto never = [] { return false; };
  const auto of = [](std::size_t bytes) -> MakeRun {
    return [=](const std::shared_ptr<kformer::Ledger>& ledger) {
      return std::make_unique<FourNumbers>(*ledger, bytes);
    };
  };
  Measurement m;
  forecast_check({of(100), of(1000), of(10)}, false, runs, m);
  BOOST_TEST(m.check_held == 0u);
  BOOST_TEST(m.check_bytes == 1000 + 3 * 4 * sizeof(double));
  const auto first = runs.get("one", "", false, of(100), never),
             again = runs.get("one", "", false, of(100), never);
  BOOST_TEST(first == again);
  runs.get("other", "", false, of(100), never);
  forecast_check({of(100)}, false, runs, m);
  BOOST_TEST(m.check_held == 2 * 4 * sizeof(double));
  BOOST_TEST(m.check_bytes == 100 + 5 * 4 * sizeof(double));
  BOOST_TEST(!runs.get("third", "", false, of(100), [] { return true; }));
}

BOOST_AUTO_TEST_CASE(of_large_tensors_every_31st_row_is_judged) {
  BOOST_TEST(judged_part(matrix(1024, 1024)).values.size() == 1024u * 1024);
  const HostArray part = judged_part(matrix(1025, 1024));
  BOOST_TEST(part.shape == (std::vector<std::size_t>{35, 1024}), boost::test_tools::per_element());
  BOOST_TEST(part.values[0] == 0);
  BOOST_TEST(part.values[1024] == 31);
  BOOST_TEST(part.values[33 * 1024] == 33 * 31);
  BOOST_TEST(part.values.back() == 1024);
  BOOST_TEST(judged_part(matrix(1024 + 1023, 1024)).shape.front() == 67u);  // the last is 66 · 31
}

BOOST_AUTO_TEST_CASE(two_kernels_in_double_agree_to_the_precision_of_float) {
  HostArrays one{{"out", matrix(4, 4)}}, other = one;
  BOOST_TEST(disagreement(one, other) == "");
  for (double& value : other["out"].values) value *= 1 + 0x1p-26;
  BOOST_TEST(disagreement(one, other) == "");
  other["out"].values[3] += 1e-3;
  BOOST_TEST(disagreement(one, other).find("out differs between two kernels in double") == 0u);
}

BOOST_AUTO_TEST_CASE(float_stands_in_for_double) {
  BOOST_TEST((naive_stand_in(kformer::DType::f64).dtype == kformer::DType::f32));
  BOOST_TEST(naive_stand_in(kformer::DType::f64).scale == 1.5L * 0x1p-29L);
  BOOST_TEST((naive_stand_in(kformer::DType::bf16).dtype == kformer::DType::bf16));
  BOOST_TEST(naive_stand_in(kformer::DType::bf16).scale == 1);
}

BOOST_AUTO_TEST_CASE(each_tensor_is_judged_by_both_limits) {
  const auto values = [](double each) { return HostArray{{50, 20}, std::vector<double>(1000, each)}; };
  const HostArrays exact{{"out", values(1)}, {"grad.q", values(1)}};
  HostArrays naive = exact;
  for (auto& [name, array] : naive)
    for (std::size_t i = 0; i < array.values.size(); ++i) array.values[i] += i % 2 == 0 ? 1e-5 : -1e-5;
  const auto verdict = [&](const HostArrays& results) { return judge(in_float(results), exact, {naive}).text; };
  BOOST_TEST(verdict(exact) == "");
  BOOST_TEST(verdict(naive) == "");
  HostArrays spike = exact, everywhere = exact;
  spike["grad.q"].values[7] += 2e-4;
  for (double& value : everywhere["grad.q"].values) value += 5e-5;
  const std::string of_spike = verdict(spike), of_all = verdict(everywhere);
  BOOST_TEST(of_spike.find("grad.q: rms error ") == 0u, of_spike);
  BOOST_TEST(of_spike.find("; 1 of 1000 elements out of tolerance, the first: 1.0002, expected 1 ± 1.5") !=
                 of_spike.npos,
             of_spike);
  BOOST_TEST(of_all.find("grad.q: rms error 5.000e-05 (limit 3.1") == 0u, of_all);
  BOOST_TEST(of_all.find("elements") == of_all.npos, of_all);
}

BOOST_AUTO_TEST_CASE(a_result_without_a_counterpart_is_out_of_tolerance) {
  const HostArrays results{{"lse", matrix(4, 4)}, {"out", matrix(4, 4)}}, part{{"out", matrix(4, 4)}};
  BOOST_TEST(judge(in_float(results), part, {results}).text == "lse: the check has no such result");
  BOOST_TEST(judge(in_float(results), results, {part}).text == "lse: the check has no such result");
  BOOST_TEST(judge(in_float(part), results, {results}).text == "");
}

// Errors of a row may have one cause; rows of a matrix have errors of their own.
BOOST_AUTO_TEST_CASE(rows_are_added_as_rows) {
  HostArrays exact, naive, results;
  for (int row = 0; row < 4; ++row) {
    add_row(exact["logits"], std::vector<double>(100, 1));
    add_row(naive["logits"], std::vector<double>(100, 1 + 1e-5));
    add_row(results["logits"], std::vector<double>(100, row == 0 ? 1 + 8e-5 : 1));
  }
  BOOST_TEST(exact["logits"].shape == (std::vector<std::size_t>{4, 100}), boost::test_tools::per_element());
  BOOST_TEST(exact["logits"].values.size() == 400u);
  const auto verdict = [&] { return judge(in_float(results), exact, {naive}).text; };
  BOOST_TEST(verdict() == "");
  results["logits"].shape.clear();
  BOOST_TEST(verdict() != "");
}

// The naive computation happens to be ten times as exact in a tensor of few rows as in the others.
BOOST_AUTO_TEST_CASE(a_lucky_sample_of_few_rows_is_widened_by_the_errors_of_the_other_tensors) {
  const auto off_by = [](double error, std::size_t rows) {
    return HostArray{{rows, 20}, std::vector<double>(rows * 20, 1 + error)};
  };
  const auto verdict = [&](double error, std::size_t rows, std::size_t independent_rows) {
    const HostArrays exact{{"a", off_by(0, rows)}, {"b", off_by(0, 50)}, {"c", off_by(0, 50)}};
    const HostArrays naive{{"a", off_by(1e-5, rows)}, {"b", off_by(1e-4, 50)}, {"c", off_by(1e-4, 50)}};
    return judge(in_float({{"a", off_by(error, rows)}}, independent_rows), exact, {naive}).text;
  };
  BOOST_TEST(verdict(1e-4, 2, any_number_of_rows) == "");
  BOOST_TEST(verdict(1e-4, 50, any_number_of_rows).find("a: rms error 1.0") == 0u);
  BOOST_TEST(verdict(1e-4, 50, 2) == "");  // a weight gradient of two tokens
  BOOST_TEST(verdict(1e-2, 2, any_number_of_rows).find("a: rms error 1.0") == 0u);
}

// The naive computation happens to be exact where rounding may do more.
BOOST_AUTO_TEST_CASE(errors_of_a_perturbed_run_widen_those_of_the_naive_one) {
  const auto off_by = [](double error) {
    return HostArrays{{"out", {{50, 20}, std::vector<double>(1000, 1 + error)}}};
  };
  const HostArrays perturbed = off_by(1e-3), other{{"lse", matrix(4, 4)}};
  const auto verdict = [&](double error, const PerturbedResults& changed) {
    return judge(in_float(off_by(error)), off_by(0), {off_by(1e-7)}, changed).text;
  };
  BOOST_TEST(verdict(2e-6, {}) != "");
  BOOST_TEST(verdict(2e-6, {&other, 1e-3L}) != "");
  BOOST_TEST(verdict(2e-6, {&perturbed, 1e-3L}) == "");
  BOOST_TEST(verdict(2e-5, {&perturbed, 1e-3L}) != "");
  BOOST_TEST(verdict(2e-5, {&perturbed, 1e-2L}) == "");
  // Of four samples it is one.
  BOOST_TEST(judge(in_float(off_by(2e-6)), off_by(0), {off_by(1e-7), 4}, {&perturbed, 1e-3L}).text != "");
}

namespace {

// A case whose numbers are off by 1e-3, where other kernels are off by 1e-5.
struct Wide {
  HostArrays results = off_by(1e-3);
  ReferenceResult exact{off_by(0), ""};
  double in_double = 0;  // error
  std::string ran = "linear_forward:kokkos", of_naive = "linear_forward:simd_avx2";
  bool stopped = false;
  int runs = 0;

  static HostArrays off_by(double error) { return {{"out", {{10, 10}, std::vector<double>(100, 1 + error)}}}; }

  std::shared_ptr<ReferenceResult> result(double error, const std::string& kernels) {
    ++runs;
    if (stopped) return nullptr;
    return std::make_shared<ReferenceResult>(ReferenceResult{off_by(error), kernels});
  }
  Measurement judged() {
    Measurement m;
    m.status = CaseStatus::unchecked;
    m.kernels = ran;
    const std::string kernels = reference_kernels(ran);
    judge_case(
        in_float(results), exact,
        {kernels,
         [&](const std::string& by) { return by == kernels ? result(1e-5, of_naive) : result(1e-3, ran); },
         [&](const std::string&) { return result(in_double, ran); }},
        m);
    return m;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_portable_kernel_that_is_right_in_double_may_sum_less_exactly, Wide) {
  BOOST_TEST((judged().status == CaseStatus::ok));
  BOOST_TEST(runs == 3);
  in_double = 1e-3;
  BOOST_TEST((judged().status == CaseStatus::failed_check));
}

BOOST_FIXTURE_TEST_CASE(what_sums_nothing_never_sets_its_own_tolerance, Wide) {
  ran = "rope_tables:kokkos";
  of_naive = "rope_tables:reference";
  const Measurement m = judged();
  BOOST_TEST((m.status == CaseStatus::failed_check));
  BOOST_TEST(m.message.find("out: rms error ") == 0u, m.message);
  BOOST_TEST(runs == 1);
}

BOOST_FIXTURE_TEST_CASE(limits_that_the_case_would_set_judge_nothing, Wide) {
  of_naive = ran;
  results = off_by(0);
  const Measurement m = judged();
  BOOST_TEST((m.status == CaseStatus::unchecked));
  BOOST_TEST(m.message.find("errors recorded but not judged: ") == 0u, m.message);
  stopped = true;
  BOOST_TEST(judged().message == "not checked: the check was interrupted");
}

namespace {

// A case of two rows of errors, whose first naive computation is lucky.
struct Lucky {
  double error = 5e-5, of_samples = 1e-5;
  std::size_t rows = 2, samples = 0, interrupt_at = 1000;

  std::shared_ptr<ReferenceResult> result(double off) const {
    const HostArray array{{rows, 10}, std::vector<double>(rows * 10, 1 + off)};
    return std::make_shared<ReferenceResult>(ReferenceResult{{{"out", array}}, "linear_forward:kokkos"});
  }
  Measurement judged(bool more = true) {
    Measurement m;
    m.kernels = "linear_forward:simd_avx2";
    NaiveRuns runs{reference_kernels(m.kernels), [&](const std::string&) { return result(1e-7); }, {}};
    if (more)
      runs.sample = [&](const std::string&, std::size_t number) -> NaiveSample {
        BOOST_TEST(number == ++samples);
        // The operands differ, and so do the exact results.
        return {number == interrupt_at ? nullptr : result(0.5 + of_samples), result(0.5)};
      };
    judge_case(in_float(result(error)->arrays), *result(0), runs, m);
    return m;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_rejection_rests_on_a_sample_of_32_rows, Lucky) {
  BOOST_TEST((judged(false).status == CaseStatus::failed_check));
  BOOST_TEST((judged().status == CaseStatus::ok));
  BOOST_TEST(samples == 15u);
  error = 1e-3;
  samples = 0;
  const Measurement wrong = judged();
  BOOST_TEST(wrong.message.find("out: rms error 1.000e-03 (limit 7.") == 0u, wrong.message);
}

BOOST_FIXTURE_TEST_CASE(a_sample_of_many_rows_is_enough, Lucky) {
  error = 2e-5;
  rows = 32;
  BOOST_TEST((judged().status == CaseStatus::failed_check));
  BOOST_TEST(samples == 0u);
  rows = 31;
  BOOST_TEST((judged().status == CaseStatus::ok));
  BOOST_TEST(samples == 1u);
}

BOOST_FIXTURE_TEST_CASE(what_is_right_needs_one_sample, Lucky) {
  error = 2e-7;
  BOOST_TEST((judged().status == CaseStatus::ok));
  BOOST_TEST(samples == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_sample_may_be_interrupted, Lucky) {
  interrupt_at = 3;
  BOOST_TEST(judged().message == "not checked: the check was interrupted");
}

BOOST_AUTO_TEST_SUITE_END()
