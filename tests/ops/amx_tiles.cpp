// SPDX-License-Identifier: MIT
// The emulated tile registers of AMX by hand, and what a process is told that has no real ones.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "kformer/core/scalar.hpp"
#include "ops/linear/host/amx/processor.hpp"
#include "support/acceptance.hpp"
#include "support/emulated_amx/tiles.hpp"

namespace kformer::Testing {
using namespace emulated_amx;
using kformer::Impl::host::AmxState;
using kformer::Impl::host::TileConfiguration;
using kformer::Impl::host::whole_tiles;

BOOST_AUTO_TEST_SUITE(amx_tiles)

namespace {

/// Registers 0: sums of `rows` × `cols`, 1 and 2: factors with `pairs`.
TileConfiguration shapes(int rows, int pairs, int cols) {
  TileConfiguration all{};
  all.palette = 1;
  const auto set = [&](int tile, int height, int width) {
    all.rows[tile] = static_cast<std::uint8_t>(height);
    all.row_bytes[tile] = static_cast<std::uint16_t>(4 * width);
  };
  set(0, rows, cols);
  set(1, rows, pairs);
  set(2, pairs, cols);
  return all;
}

std::string fault(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return {};
}

struct Released {
  ~Released() { tilerelease(); }
};

/// sum + left · right of one element, from its pairs.
float product(float sum, const std::vector<float>& left, const std::vector<float>& right) {
  const Released at_the_end;
  const int pairs = static_cast<int>(left.size() / 2);
  std::vector<bf16> a, b;
  for (const float x : left) a.emplace_back(x);
  for (const float x : right) b.emplace_back(x);
  ldtilecfg(shapes(1, pairs, 1));
  tileloadd(0, &sum, 4);
  tileloadd(1, a.data(), 0);
  tileloadd(2, b.data(), 4);
  tdpbf16ps(0, 1, 2);
  tilestored(0, &sum, 4);
  return sum;
}

}  // namespace

// Rows of left and columns of right; a pair of right are two rows of the matrix.
BOOST_AUTO_TEST_CASE(a_product_by_hand) {
  const Released at_the_end;
  const bf16 left[2][4] = {{bf16(1), bf16(2), bf16(3), bf16(4)}, {bf16(5), bf16(6), bf16(7), bf16(8)}};
  const bf16 right[2][6] = {{bf16(1), bf16(10), bf16(2), bf16(20), bf16(3), bf16(30)},
                            {bf16(4), bf16(40), bf16(5), bf16(50), bf16(6), bf16(60)}};
  float sums[2][5] = {{100, 200, 300, -1, -1}, {400, 500, 600, -1, -1}};
  ldtilecfg(shapes(2, 2, 3));
  tileloadd(0, sums, sizeof(sums[0]));
  tileloadd(1, left, sizeof(left[0]));
  tileloadd(2, right, sizeof(right[0]));
  tdpbf16ps(0, 1, 2);
  tilestored(0, sums, sizeof(sums[0]));
  // 1·1 + 2·10 + 3·4 + 4·40 = 193, …
  const float expected[2][5] = {{293, 457, 621, -1, -1}, {813, 1065, 1317, -1, -1}};
  for (int r = 0; r < 2; ++r)
    for (int c = 0; c < 5; ++c) BOOST_TEST(sums[r][c] == expected[r][c]);
  tilezero(0);
  tilestored(0, sums, sizeof(sums[0]));
  BOOST_TEST(sums[1][2] == 0);
  BOOST_TEST(sums[1][3] == -1);
}

// 2^24 + 1 is the first integer that float lacks.
BOOST_AUTO_TEST_CASE(sums_have_the_order_and_the_roundings_of_the_instruction) {
  // Even and odd places apart: 1 does not meet 2^24.
  BOOST_TEST(product(0, {0x1p24F, 1, -0x1p24F, 0}, {1, 1, 1, 0}) == 1);
  // What was there before comes last.
  BOOST_TEST(product(1, {0x1p24F, 0, -0x1p24F, 0}, {1, 0, 1, 0}) == 1);
  BOOST_TEST(product(0x1p24F, {1, 1}, {1, 1}) == 0x1p24F + 2);
  // To nearest, ties to even.
  BOOST_TEST(product(0x1p24F, {1, 0}, {1, 0}) == 0x1p24F);
  BOOST_TEST(product(0x1p24F, {3, 0}, {1, 0}) == 0x1p24F + 4);
  // Products have no rounding and no range of their own.
  BOOST_TEST(product(0, {-0x1.fep127F, 0, 0x1p64F, 0}, {1, 0, 0x1p64F, 0}) == 0x1p120F);
  BOOST_TEST(product(0, {0x1p-126F, 0, 0x1p-65F, 0}, {1, 0, 0x1p-65F, 0}) == 0x1.1p-126F);
}

BOOST_AUTO_TEST_CASE(subnormal_numbers_are_zeros) {
  const float least = 0x1p-126F;
  BOOST_TEST(product(0, {least, 0}, {1, 0}) == least);
  BOOST_TEST(product(0, {least, 0}, {0.5F, 0}) == 0);           // as a result
  BOOST_TEST(product(0, {least / 2, 0}, {0x1p100F, 0}) == 0);   // as a factor
  BOOST_TEST(product(least / 2, {least, 0}, {1, 0}) == least);  // as a sum that was there before
  BOOST_TEST(product(-1.5F * least, {least, 0}, {1, 0}) == 0);  // as what is left of it
  BOOST_TEST(std::signbit(product(-1.5F * least, {least, 0}, {1, 0})));
}

BOOST_AUTO_TEST_CASE(infinities_and_nan_arrive) {
  BOOST_TEST(product(0, {INFINITY, 0}, {1, 0}) == INFINITY);
  BOOST_TEST(std::isnan(product(0, {INFINITY, 0}, {0, 0})));
  BOOST_TEST(std::isnan(product(0, {1, 0, NAN, 0}, {1, 0, 1, 0})));
  BOOST_TEST(product(0, {0x1.fep127F, 0}, {2, 0}) == INFINITY);
}

BOOST_AUTO_TEST_CASE(wrong_configurations_are_faults) {
  const auto configure = [](auto change) {
    TileConfiguration all = whole_tiles;
    change(all);
    return fault([&] { ldtilecfg(all); });
  };
  BOOST_TEST(configure([](auto&) {}) == "");
  tilerelease();
  BOOST_TEST(configure([](auto& all) { all.palette = 2; }) == "ldtilecfg: there are palettes 0 and 1");
  BOOST_TEST(configure([](auto& all) { all.start_row = 1; }) == "ldtilecfg: it starts in the middle");
  BOOST_TEST(configure([](auto& all) { all.reserved[13] = 1; }) == "ldtilecfg: reserved bytes are not 0");
  BOOST_TEST(configure([](auto& all) { all.rows[7] = 17; }) == "ldtilecfg: a tile is too large");
  BOOST_TEST(configure([](auto& all) { all.row_bytes[7] = 68; }) == "ldtilecfg: a tile is too large");
  BOOST_TEST(configure([](auto& all) { all.rows[8] = 1; }) == "ldtilecfg: there are eight tiles");
  BOOST_TEST(configure([](auto& all) { all.rows[3] = 0; }) ==
             "ldtilecfg: a tile has rows without bytes, or bytes without rows");
  BOOST_TEST(threads_in_use() == 0);
}

BOOST_AUTO_TEST_CASE(tiles_without_a_configuration_are_faults) {
  const Released at_the_end;
  float memory[256] = {};
  const auto every = [&](const std::string& what) {
    BOOST_TEST(fault([] { tilezero(3); }) == "tilezero: " + what);
    BOOST_TEST(fault([&] { tileloadd(3, memory, 64); }) == "tileloadd: " + what);
    BOOST_TEST(fault([&] { tilestored(3, memory, 64); }) == "tilestored: " + what);
    BOOST_TEST(fault([] { tdpbf16ps(3, 1, 2); }) == "tdpbf16ps: " + what);
  };
  every("no tiles are configured");
  ldtilecfg(shapes(2, 2, 2));
  every("this tile is not configured");
  BOOST_TEST(fault([] { tdpbf16ps(0, 1, 1); }) == "tdpbf16ps: its tiles are not three different ones");
  BOOST_TEST(fault([] { tdpbf16ps(0, 1, 2); }) == "");
  // A thread has registers of its own.
  std::string other;
  std::thread([&] { other = fault([] { tilezero(0); }); }).join();
  BOOST_TEST(other == "tilezero: no tiles are configured");
  BOOST_TEST(threads_in_use() == 1);
  tilerelease();
  every("no tiles are configured");
  TileConfiguration unlike = shapes(2, 2, 2);
  unlike.rows[2] = 3;
  ldtilecfg(unlike);
  BOOST_TEST(fault([] { tdpbf16ps(0, 1, 2); }) == "tdpbf16ps: the shapes of its tiles do not match");
}

BOOST_AUTO_TEST_CASE(a_configuration_clears_tiles) {
  const Released at_the_end;
  std::vector<float> memory(256, 1);
  ldtilecfg(whole_tiles);
  tileloadd(0, memory.data(), 64);
  ldtilecfg(whole_tiles);
  tilestored(0, memory.data(), 64);
  BOOST_TEST((memory == std::vector<float>(256)));
}

BOOST_AUTO_TEST_CASE(refusals_say_what_is_missing) {
  constexpr std::uint32_t bf16_bit = 1U << 22, tile_bit = 1U << 24, int8_bit = 1U << 25;
  constexpr std::uint64_t configuration = 1U << 17, data = 1U << 18;
  const auto refusal = [](std::uint32_t features, std::uint64_t enabled, const char* denied = "") {
    return AmxState{features, enabled, denied}.refusal();
  };
  const std::string none = "this processor has no AMX for bf16 (AMX-TILE, AMX-BF16)";
  BOOST_TEST(refusal(0, configuration | data) == none);
  BOOST_TEST(refusal(bf16_bit | int8_bit, configuration | data) == none);
  BOOST_TEST(refusal(tile_bit | int8_bit, configuration | data) == none);
  const std::string disabled = "the system does not enable the tile registers of AMX";
  BOOST_TEST(refusal(bf16_bit | tile_bit, 7) == disabled);
  BOOST_TEST(refusal(bf16_bit | tile_bit, configuration) == disabled);
  BOOST_TEST(refusal(bf16_bit | tile_bit, data) == disabled);
  BOOST_TEST(refusal(bf16_bit | tile_bit, configuration | data, "no memory") ==
             "the system gives this process no tile registers of AMX: no memory");
  BOOST_TEST(refusal(bf16_bit | tile_bit, configuration | data) == "");
}

// Linux lists the features of processors whose registers it enables.
#if defined(__x86_64__) && defined(__linux__)
BOOST_AUTO_TEST_CASE(this_process_knows_its_processor) {
  const bool listed = processor_flags().contains("amx_tile") && processor_flags().contains("amx_bf16");
  const AmxState state = AmxState::of_process();
  BOOST_TEST(AmxState({state.features, state.enabled, ""}).refusal().empty() == listed);
  BOOST_TEST(kformer::Impl::host::amx_refusal() == state.refusal());
  if (!listed) BOOST_TEST(state.denied == "");  // nothing was asked
}
#endif

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
