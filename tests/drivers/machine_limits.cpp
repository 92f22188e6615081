// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>

#include "measure/kernel_names.hpp"
#include "measure/machine_space.hpp"
#include "start_kokkos_once.hpp"

BOOST_AUTO_TEST_SUITE(machine_limits)

BOOST_AUTO_TEST_CASE(what_a_case_is_forced_to_run_lowers_no_limit) {
  using namespace kformer;
  using Exec = Kokkos::DefaultHostExecutionSpace;
  Testing::start_kokkos_once();
  const ForcedKernels forced("linear:kokkos");
  const auto kernels_of = [](const auto& rate) {
    const measure::KernelNames names;
    BOOST_TEST(rate(Exec(), {.repeats = 1, .min_time_s = 0, .max_time_s = 0.1}) > 0);
    return names.text();
  };
  BOOST_TEST(kernels_of(measure::matmul_rate<Exec, bf16>) == "linear_forward:kokkos");
  BOOST_TEST(kernels_of(measure::free_matmul_rate<Exec, bf16>) != "linear_forward:kokkos");
}

BOOST_AUTO_TEST_SUITE_END()
