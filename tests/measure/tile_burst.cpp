// SPDX-License-Identifier: MIT
// The burst of products on tile registers, on emulated ones.
#include <boost/test/unit_test.hpp>

#include <vector>

#include "measure/bursts/tile_burst_kernel.hpp"
#include "support/emulated_amx/tiles.hpp"

namespace kformer::Testing {
using measure::TileBurst;

BOOST_AUTO_TEST_SUITE(tile_burst)

namespace {

std::vector<int> multiplied_into;

/// Remembers the sums of products.
struct RecordedTiles : emulated_amx::EmulatedTiles {
  template <int sum, int left, int right>
  static void multiply_bf16() {
    multiplied_into.push_back(sum);
    EmulatedTiles::multiply_bf16<sum, left, right>();
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(it_multiplies_as_much_as_it_says) {
  for (const int iterations : {0, 1, 7}) {
    const std::int64_t products = emulated_amx::products(), configurations = emulated_amx::configurations();
    const float total = TileBurst<emulated_amx::EmulatedTiles>::run(iterations, 0.5F);
    BOOST_TEST(total == 4 * iterations * 32 * 0.25F);
    const std::int64_t done = emulated_amx::products() - products;
    BOOST_TEST(done == 4 * iterations * 16 * 16 * 32);
    BOOST_TEST(2.0 * double(done) == iterations * TileBurst<emulated_amx::EmulatedTiles>::flops_per_iteration);
    BOOST_TEST(emulated_amx::configurations() == configurations + 1);
    BOOST_TEST(emulated_amx::threads_in_use() == 0, "it did not release its tiles");
  }
}

BOOST_AUTO_TEST_CASE(its_sums_do_not_wait_for_each_other) {
  multiplied_into.clear();
  TileBurst<RecordedTiles>::run(2, 0.5F);
  BOOST_TEST((multiplied_into == std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3}));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
