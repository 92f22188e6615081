// SPDX-License-Identifier: MIT
#include "app/memory/scratch.hpp"

#include <boost/test/unit_test.hpp>

#include "kformer/core/scratch.hpp"
#include "measure/spaces.hpp"
#include "start_kokkos_once.hpp"
#include "support/tools.hpp"

namespace kformer::drivers {
namespace {

using Exec = Kokkos::DefaultHostExecutionSpace;

std::string host_space() {
  std::string found;
  measure::for_each_space([&]<class Other>(std::type_identity<Other>, const char* name) {
    if (std::is_same_v<Other, Exec>) found = name;
  });
  return found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(scratch)

// `reserve_scratch` of the library promises what the usual bytes are enough for; more is in proportion.
BOOST_AUTO_TEST_CASE(a_thread_gets_what_the_largest_kernel_needs) {
  const auto times = [](std::int64_t head_dim, std::int64_t kv_heads, std::int64_t columns = 0) {
    const std::size_t bytes = scratch_per_thread(head_dim, kv_heads, columns);
    BOOST_TEST(bytes % usual_scratch_bytes == 0u);
    return bytes / usual_scratch_bytes;
  };
  BOOST_TEST(times(1, 1) == 1u);
  BOOST_TEST(times(256, 32, 32768) == 1u);
  BOOST_TEST(times(257, 32) == 2u);
  BOOST_TEST(times(256, 33) == 2u);
  BOOST_TEST(times(513, 65) == 9u);
  BOOST_TEST(times(128, 8, 32769) == 2u);
  BOOST_TEST(times(512, 8, 32768 * 3) == 3u);
}

BOOST_AUTO_TEST_CASE(rows_of_a_model_count_where_its_weights_are_quantised) {
  LlamaConfig config;
  config.hidden_size = 16384;
  config.intermediate_size = 53248;
  config.num_attention_heads = 128;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  BOOST_TEST(scratch_per_thread(config, false) == usual_scratch_bytes);
  BOOST_TEST(scratch_per_thread(config, true) == 2 * usual_scratch_bytes);
}

BOOST_AUTO_TEST_CASE(what_is_reserved_was_forecast) {
  Testing::start_kokkos_once();
  const std::string space = host_space();
  const auto threads = static_cast<std::size_t>(Exec().concurrency());
  BOOST_TEST(reserved_scratch(space) == 0u);
  const Testing::ToolsRecorder recorder;
  const std::size_t forecast = forecast_scratch(space, usual_scratch_bytes);
  BOOST_TEST(forecast == usual_scratch_bytes * threads);
  BOOST_TEST(recorder.allocations().empty());
  BOOST_TEST(reserved_scratch(space) == 0u);
  BOOST_TEST(reserve_scratch(space, usual_scratch_bytes) == forecast);
  BOOST_TEST(recorder.allocations().size() == threads);
  BOOST_TEST(reserved_scratch(space) == forecast);
  // Less is there already.
  BOOST_TEST(reserve_scratch(space, usual_scratch_bytes / 2) == forecast);
  BOOST_TEST(recorder.allocations().size() == threads);
  // No kernel gets more than that of Kokkos.
  const auto most = static_cast<std::size_t>(Kokkos::TeamPolicy<Exec>::scratch_size_max(1));
  BOOST_TEST(forecast_scratch(space, most + 1) == most * threads);
}

BOOST_AUTO_TEST_CASE(devices_need_none) {
  Testing::start_kokkos_once();
  for (const std::string& space : measure::built_spaces())
    if (!measure::runs_on_host(space)) BOOST_TEST(forecast_scratch(space, usual_scratch_bytes) == 0u);
  BOOST_TEST(scratch_text(0) == "");
  BOOST_TEST(scratch_text(8 << 20) ==
             "scratch: 8.00 MiB of the kernels, reserved for the whole run, in no peak\n");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::drivers
