// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>

#include <string>

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

BOOST_AUTO_TEST_CASE(a_kernel_on_both_sides_is_named) {
  BOOST_TEST(shared_kernels("a:x b:kokkos c:separate", "a:y b:kokkos c:separate") == "b:kokkos");
  BOOST_TEST(shared_kernels("a:xy", "a:x") == "");
  Measurement m;
  m.kernels = m.check_kernels = "a:x";
  BOOST_TEST(!independent(m));
  BOOST_TEST(m.message == "not checked: the reference would run kernels of the case: a:x");
}

BOOST_AUTO_TEST_CASE(a_check_without_memory_says_what_it_needs) {
  Measurement m;
  m.check_bytes = std::size_t(1) << 60;
  BOOST_TEST(!fits_check("serial", m));
  BOOST_TEST(m.message.find("not checked: the check needs 1048576.00 TiB, but only ") == 0u, m.message);
}

BOOST_AUTO_TEST_CASE(of_large_tensors_every_31st_row_is_judged) {
  BOOST_TEST(judged_part(matrix(1024, 1024)).values.size() == 1024u * 1024);
  const HostArray part = judged_part(matrix(1025, 1024));
  BOOST_TEST(part.shape == (std::vector<std::size_t>{34, 1024}), boost::test_tools::per_element());
  BOOST_TEST(part.values[0] == 0);
  BOOST_TEST(part.values[1024] == 31);
  BOOST_TEST(part.values.back() == 33 * 31);
}

BOOST_AUTO_TEST_CASE(two_kernels_in_double_agree_to_the_precision_of_float) {
  HostArrays one{{"out", matrix(4, 4)}}, other = one;
  BOOST_TEST(disagreement(one, other) == "");
  for (double& value : other["out"].values) value *= 1 + 0x1p-26;
  BOOST_TEST(disagreement(one, other) == "");
  other["out"].values[3] += 1e-3;
  BOOST_TEST(disagreement(one, other).find("out differs between two kernels in double") == 0u);
}

BOOST_AUTO_TEST_CASE(each_tensor_is_judged_by_both_limits) {
  const auto values = [](double each) { return HostArray{{50, 20}, std::vector<double>(1000, each)}; };
  const HostArrays exact{{"out", values(1)}, {"grad.q", values(1)}};
  HostArrays naive = exact;
  for (auto& [name, array] : naive)
    for (std::size_t i = 0; i < array.values.size(); ++i) array.values[i] += i % 2 == 0 ? 1e-5 : -1e-5;
  const auto verdict = [&](const HostArrays& results) {
    return judge(results, exact, naive, kformer::DType::f32,
                 [](const std::string&) { return kformer::DType::f32; });
  };
  BOOST_TEST(verdict(exact) == "");
  BOOST_TEST(verdict(naive) == "");
  HostArrays spike = exact, everywhere = exact;
  spike["grad.q"].values[7] += 1.5e-4;
  for (double& value : everywhere["grad.q"].values) value += 5e-5;
  const std::string of_spike = verdict(spike), of_all = verdict(everywhere);
  BOOST_TEST(of_spike.find("grad.q: rms error ") == 0u, of_spike);
  BOOST_TEST(of_spike.find("; 1 of 1000 elements out of tolerance, the first: 1.00015, expected 1 ± 1.0") !=
                 of_spike.npos,
             of_spike);
  BOOST_TEST(of_all.find("grad.q: rms error 5.000e-05 (limit 3.1") == 0u, of_all);
  BOOST_TEST(of_all.find("elements") == of_all.npos, of_all);
}

BOOST_AUTO_TEST_SUITE_END()
