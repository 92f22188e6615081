// SPDX-License-Identifier: MIT
#include "memory/cuda/device_pool.hpp"

#include <cstdint>
#include <limits>

#include "kformer/core/error.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

using Impl::cuda::DevicePool;

constexpr int device = 3;
constexpr cudaStream_t stream = 7, other_stream = 8;

struct NewDevice {
  NewDevice() { fake_device = {}; }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(device_pool, NewDevice)

BOOST_AUTO_TEST_CASE(memory_is_kept_unless_the_program_has_said_how_much) {
  BOOST_TEST(DevicePool(device).exists());
  BOOST_TEST(fake_device.threshold == std::numeric_limits<std::uint64_t>::max());
  fake_device.threshold = 500;
  BOOST_TEST(DevicePool(device).exists());
  BOOST_TEST(fake_device.threshold == 500u);
}

BOOST_AUTO_TEST_CASE(a_device_may_have_no_pools) {
  fake_device.pools_supported = 0;
  BOOST_TEST(!DevicePool(device).exists());
  BOOST_TEST(fake_device.threshold == 0u);
}

BOOST_AUTO_TEST_CASE(memory_is_taken_and_given_back_on_the_stream_without_waiting) {
  const DevicePool pool(device);
  void* const data = pool.allocate(600, stream);
  BOOST_TEST(data != nullptr);
  BOOST_TEST(fake_device.allocated_on == std::vector<cudaStream_t>{stream}, boost::test_tools::per_element());
  pool.free(data, other_stream);
  BOOST_TEST(fake_device.kept.at(0).second == other_stream);
  BOOST_TEST(fake_device.synchronizations == 0);
  BOOST_TEST(pool.reserved_bytes() == 600u);
  pool.free(pool.allocate(600, stream), stream);
  BOOST_TEST(pool.reserved_bytes() == 600u);
}

BOOST_AUTO_TEST_CASE(what_is_kept_goes_back_to_the_device_when_memory_is_short) {
  const DevicePool pool(device);
  pool.free(pool.allocate(600, stream), stream);
  void* const data = pool.allocate(700, stream);
  BOOST_TEST(data != nullptr);
  BOOST_TEST(pool.reserved_bytes() == 700u);
  BOOST_TEST(fake_device.synchronizations == 1);
  BOOST_TEST(fake_device.device == device);
  BOOST_TEST(fake_device.last_error == cudaSuccess);
  pool.free(data, stream);
}

BOOST_AUTO_TEST_CASE(memory_that_cannot_be_had_is_null_and_no_error_of_the_next_launch) {
  const DevicePool pool(device);
  void* const held = pool.allocate(600, stream);
  BOOST_TEST(pool.allocate(700, stream) == nullptr);
  BOOST_TEST(fake_device.last_error == cudaSuccess);
  BOOST_TEST(pool.reserved_bytes() == 600u);
  pool.free(held, stream);
}

BOOST_AUTO_TEST_CASE(trimming_waits_and_leaves_what_is_in_use) {
  const DevicePool pool(device);
  void* const held = pool.allocate(100, stream);
  pool.free(pool.allocate(600, stream), stream);
  pool.trim();
  BOOST_TEST(pool.reserved_bytes() == 100u);
  BOOST_TEST(fake_device.synchronizations == 1);
  pool.free(held, stream);
}

BOOST_AUTO_TEST_CASE(other_errors_are_told) {
  const DevicePool pool(device);
  fake_device.broken = cudaErrorInvalidValue;
  check_error<Error>([&] { pool.allocate(1, stream); },
                     "kformer::Pool: cudaMallocFromPoolAsync: CUDA says: invalid argument");
  check_error<Error>([&] { pool.free(nullptr, stream); },
                     "kformer::Pool: cudaFreeAsync: CUDA says: invalid argument");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
