// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>

#include <chrono>
#include <thread>

#include "measure/kernel_names.hpp"
#include "measure/machine_space.hpp"
#include "ops/linear/host/amx/processor.hpp"
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

// Where `simd_amx_bf16` may run.
BOOST_AUTO_TEST_CASE(tiles_burst_where_kernels_may_use_them) {
  using namespace kformer;
  const std::string refusal = Impl::host::amx_refusal(), vectors = measure::host_bursts().instructions;
  BOOST_TEST_CONTEXT(refusal) {
    const auto& burst = measure::tile_burst();
    BOOST_TEST((burst.run != nullptr) == refusal.empty());
    BOOST_TEST(measure::burst_instructions() == (refusal.empty() ? vectors + "+amx" : vectors));
    if (burst.run != nullptr) BOOST_TEST(burst.run(3, 0.5F) == 4 * 3 * 32 * 0.25F);
  }
}

// It claims more than any processor does.
BOOST_AUTO_TEST_CASE(the_faster_burst_of_bf16_is_the_limit) {
  using namespace kformer;
  using Exec = Kokkos::DefaultHostExecutionSpace;
  Testing::start_kokkos_once();
  constexpr double claimed = 1e30;
  const measure::ArithmeticBurst<float> fast{[](std::int64_t, float factor) { return factor; }, claimed}, none;
  const measure::SamplingPlan plan{.repeats = 1, .min_time_s = 0, .max_time_s = 0.1};
  BOOST_TEST(measure::pair_rate(Exec(), plan, fast) > claimed);
  BOOST_TEST(measure::pair_rate(Exec(), plan, none) < claimed);
  BOOST_TEST((measure::pair_rate(Exec(), plan, none) > 0) == (measure::host_bursts().bf16.run != nullptr));
}

// Each kind of access in its turn is faster than any memory.
BOOST_AUTO_TEST_CASE(the_fastest_access_is_the_limit_of_memory) {
  using namespace kformer;
  using Exec = Kokkos::DefaultHostExecutionSpace;
  Testing::start_kokkos_once();
  measure::HostBursts slow = measure::host_bursts();
  slow.read = [](const double*, std::int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return 0.0;
  };
  slow.update = [](double*, std::int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  slow.stream = [](const double*, double*, std::int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  measure::HostBursts read = slow, update = slow, stream = slow;
  read.read = [](const double*, std::int64_t) { return 0.0; };
  update.update = [](double*, std::int64_t) {};
  stream.stream = [](const double*, double*, std::int64_t) {};
  const auto limits = [](const measure::HostBursts& bursts) {
    const measure::SamplingPlan plan{.repeats = 5, .min_time_s = 0, .max_time_s = 0.1};
    return measure::Bandwidths<Exec>(1 << 16, plan, bursts).largest_of_each();
  };
  const auto least = limits(slow);
  for (const auto* fast : {&read, &update, &stream}) {
    const auto found = limits(*fast);
    BOOST_TEST(found.moved > 10 * least.moved);
    BOOST_TEST(found.read > 10 * least.read);
  }
}

BOOST_AUTO_TEST_SUITE_END()
