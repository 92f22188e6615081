// SPDX-License-Identifier: MIT
// Checks of the CUDA kernels that need no device: do they fit, where are their tiles, which thread
// has which element of a matrix.
#include "ops/common/cuda/machine.hpp"
#include "ops/common/cuda/split_floats.hpp"
#include "ops/common/cuda/tf32_instructions.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "cuda/warpgroups.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/scalar.hpp"
#include "ops/attention/cuda/hopper/tiles.hpp"
#include "ops/attention/cuda/tile_table.hpp"
#include "ops/common/cuda/device.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(machine)

namespace cuda = Impl::cuda;
using cuda::Half;

// A profile has the end of every launch, also of one that CUDA refuses.
BOOST_AUTO_TEST_CASE(announced_launches_end) {
  namespace Tools = Kokkos::Tools::Experimental;
  static int running, begun;
  running = begun = 0;
  const Tools::EventSet before = Tools::get_callbacks();
  Tools::set_begin_parallel_for_callback(
      [](const char*, std::uint32_t, std::uint64_t*) { ++running, ++begun; });
  Tools::set_end_parallel_for_callback([](std::uint64_t) { --running; });
  const Kokkos::DefaultHostExecutionSpace exec;
  cuda::announced("kformer::launched", exec, [] { BOOST_TEST(running == 1); });
  BOOST_CHECK_THROW(cuda::announced("kformer::refused", exec, [] { throw Error("refused"); }), Error);
  Tools::set_callbacks(before);
  BOOST_TEST(begun == 2);
  BOOST_TEST(running == 0);
}

void check_occupancy(int capability, int threads, int registers, int shared_bytes, int blocks,
                     double fraction) {
  const cuda::Occupancy o = cuda::occupancy(cuda::machine(capability), threads, registers, shared_bytes);
  BOOST_TEST_CONTEXT(capability << ": " << threads << " threads, " << registers << " registers, "
                                << shared_bytes << " bytes") {
    BOOST_TEST(o.blocks == blocks);
    BOOST_TEST(o.warps == blocks * ((threads + 31) / 32));
    BOOST_TEST(o.fraction == fraction);
  }
}

// By hand, from the limits of the programming guide.
BOOST_AUTO_TEST_CASE(occupancies) {
  // By threads: 2048 / 256, 1536 / 256, and one block of 1024 of 1536.
  check_occupancy(80, 256, 32, 0, 8, 1);
  check_occupancy(86, 256, 32, 0, 6, 1);
  check_occupancy(89, 1024, 32, 0, 1, 32.0 / 48);
  // By blocks: 32, 16, 24, 32, 24 of one warp each.
  check_occupancy(80, 32, 16, 0, 32, 0.5);
  check_occupancy(86, 32, 16, 0, 16, 16.0 / 48);
  check_occupancy(89, 32, 16, 0, 24, 0.5);
  check_occupancy(90, 32, 16, 0, 32, 0.5);
  check_occupancy(120, 32, 16, 0, 24, 0.5);
  // By registers: a quarter has 16384; 255 · 32 become 8192, so 2 warps per quarter. 129 · 32 become 4352: 3.
  check_occupancy(90, 128, 255, 0, 2, 8.0 / 64);
  check_occupancy(90, 128, 129, 0, 3, 12.0 / 64);
  check_occupancy(90, 128, 128, 0, 4, 16.0 / 64);
  // 5 warps of 72 registers: 2304 each, 7 per quarter, 28 in all, 5 blocks.
  check_occupancy(80, 160, 72, 0, 5, 25.0 / 64);
  // By shared memory, 1 KB of each block reserved: 228 / 114 = 2, 228 / 115 = 1; 100 / 33 = 3; 164 / 49 = 3.
  check_occupancy(90, 128, 64, 113 * 1024, 2, 8.0 / 64);
  check_occupancy(90, 128, 64, 113 * 1024 + 1, 1, 4.0 / 64);
  check_occupancy(86, 128, 64, 32 * 1024, 3, 12.0 / 48);
  check_occupancy(80, 128, 64, 48 * 1024, 3, 12.0 / 64);
  // The most that one block may have, and one byte more.
  check_occupancy(80, 128, 64, 163 * 1024, 1, 4.0 / 64);
  check_occupancy(80, 128, 64, 163 * 1024 + 1, 0, 0);
  check_occupancy(120, 128, 64, 99 * 1024, 1, 4.0 / 48);
  check_occupancy(120, 128, 64, 99 * 1024 + 1, 0, 0);
  // What does not fit at all: 1024 threads of 72 registers, 256 registers, 1025 threads.
  check_occupancy(90, 1024, 72, 0, 0, 0);
  check_occupancy(90, 32, 256, 0, 0, 0);
  check_occupancy(90, 1025, 16, 0, 0, 0);
}

BOOST_AUTO_TEST_CASE(presets) {
  const std::pair<const char*, int> expected[] = {{"A100", 80},     {"RTX 3090", 86},  {"RTX 3090 Ti", 86},
                                                  {"RTX 4090", 89}, {"L40S", 89},      {"H100", 90},
                                                  {"H200", 90},     {"RTX 5080", 120}, {"RTX 5090", 120}};
  BOOST_REQUIRE(std::size(cuda::presets) == std::size(expected));
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    BOOST_TEST(cuda::presets[i].name == expected[i].first);
    BOOST_TEST(cuda::presets[i].limits.capability == expected[i].second);
  }
}

BOOST_AUTO_TEST_CASE(devices_that_are_not_in_the_table) {
  using cuda::shared_memory, cuda::SharedMemory;
  const std::tuple<int, int, SharedMemory> expected[] = {
      {80, 80, SharedMemory::large},  {86, 86, SharedMemory::small},   {87, 86, SharedMemory::small},
      {89, 89, SharedMemory::small},  {90, 90, SharedMemory::large},   {100, 90, SharedMemory::large},
      {103, 90, SharedMemory::large}, {120, 120, SharedMemory::small}, {121, 120, SharedMemory::small}};
  for (const auto& [capability, like, memory] : expected) {
    const cuda::Machine& m = cuda::machine_of_device(capability);
    BOOST_TEST(m.capability == like);
    BOOST_TEST((shared_memory(m) == memory));
  }
}

template <int threads_, int blocks_, int bytes_>
struct AnyKernel {
  static constexpr int threads = threads_, blocks_per_multiprocessor = blocks_, shared_bytes = bytes_;
};
struct HopperKernel : AnyKernel<384, 1, 200 * 1024> {
  static constexpr bool runs_on(const cuda::Machine& m) { return m.capability == 90; }
};

BOOST_AUTO_TEST_CASE(kernels_that_fit) {
  using cuda::fits, cuda::fits_its_machines, cuda::machine;
  static_assert(fits_its_machines<AnyKernel<128, 2, 48 * 1024>>());
  static_assert(fits<AnyKernel<128, 2, 56 * 1024>>(machine(80)) &&
                !fits<AnyKernel<128, 2, 56 * 1024>>(machine(86)));
  static_assert(!fits_its_machines<AnyKernel<128, 2, 56 * 1024>>());
  static_assert(fits<AnyKernel<1024, 2, 0>>(machine(90)) && !fits<AnyKernel<1024, 2, 0>>(machine(120)));
  static_assert(fits_its_machines<HopperKernel>() && !fits_its_machines<AnyKernel<384, 1, 200 * 1024>>());
}

template <Half type, int features>
void check_forward_tiles() {
  using Kernel = cuda::ForwardKernel<cuda::ForwardTable<type, features>>;
  static_assert(Kernel::features == features);
  for (const cuda::Machine& m : cuda::machines)
    BOOST_TEST(cuda::fits<Kernel>(m), features << " features on " << m.capability);
}

BOOST_AUTO_TEST_CASE(attention_tiles_fit) {
  cuda::with_half(Half::bf16, []<Half type>() {
    check_forward_tiles<type, 64>();
    check_forward_tiles<type, 96>();
    check_forward_tiles<type, 128>();
    check_forward_tiles<type, 256>();
  });
}

template <int features>
void check_swizzle() {
  using Tile = cuda::Swizzled<features>;
  constexpr int rows = 64, chunks = features / 8, banks = 8;  // of 16 bytes, in which ldmatrix reads
  std::set<cuda::SharedAddress> places;
  for (int row = 0; row < rows; ++row)
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const cuda::SharedAddress place = Tile::at(row, chunk);
      BOOST_TEST(place % 16 == 0u);
      BOOST_TEST(place < 2u * features * rows);
      places.insert(place);
    }
  BOOST_TEST(places.size() == static_cast<std::size_t>(rows * chunks));
  for (int first = 0; first < rows; first += 8)
    for (int chunk = 0; chunk < chunks; ++chunk) {
      std::set<cuda::SharedAddress> hit;
      for (int row = first; row < first + 8; ++row) hit.insert(Tile::at(row, chunk) / 16 % banks);
      BOOST_TEST(hit.size() == 8u, features << " features: rows from " << first << ", chunk " << chunk);
    }
}

BOOST_AUTO_TEST_CASE(swizzled_tiles) {
  check_swizzle<32>();
  check_swizzle<64>();
  check_swizzle<96>();
  check_swizzle<128>();
  check_swizzle<256>();
}

// Runs `body(lane)` on the 32 lanes of one emulated warp.
template <class F>
void run_warp(std::size_t shared_bytes, const F& body) {
  cuda::emulation::Block::run_grid(1, 32, shared_bytes, [&] { body(cuda::thread_index()); });
}

std::uint16_t half_of(std::uint32_t both, int i) { return static_cast<std::uint16_t>(both >> (i % 2 * 16)); }

// PTX ISA, ldmatrix: "each thread receives a fragment of one row": of the row groupID = lane / 4 its elements
// 2 (lane % 4) and the next; with .trans of the column. Element (i, row, column) is stored as a number of its
// own.
BOOST_AUTO_TEST_CASE(loaded_matrices) {
  const auto number = [](int matrix, int row, int column) { return 256 * matrix + 16 * row + column; };
  for (const bool transposed : {false, true}) {
    std::array<std::array<std::uint32_t, 4>, 32> got;
    run_warp(4 * 8 * 8 * 2, [&](int lane) {
      // Lane l stores row l % 8 of matrix l / 8 and names its address.
      const auto row_address = static_cast<cuda::SharedAddress>(16 * lane);
      for (int column = 0; column < 8; ++column)
        cuda::store_shared(row_address + 2 * static_cast<cuda::SharedAddress>(column),
                           static_cast<std::uint16_t>(number(lane / 8, lane % 8, column)));
      cuda::block_barrier();
      std::uint32_t r[4];
      transposed ? cuda::load_matrices_transposed(r, row_address) : cuda::load_matrices(r, row_address);
      for (std::size_t i = 0; i < 4; ++i) got[static_cast<std::size_t>(lane)][i] = r[i];
    });
    for (int lane = 0; lane < 32; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix)
        for (int i = 0; i < 2; ++i) {
          const int group = lane / 4, element = lane % 4 * 2 + i;
          const int expected = transposed ? number(matrix, element, group) : number(matrix, group, element);
          BOOST_TEST(half_of(got[static_cast<std::size_t>(lane)][static_cast<std::size_t>(matrix)], i) ==
                     expected);
        }
  }
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", as it is written there, with groupID =
// lane >> 2 and threadID_in_group = lane % 4.
struct Place {
  int row, column;
};
Place place_in_a(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {(0 <= i && i < 2) || (4 <= i && i < 6) ? group : group + 8,
          i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8};
}
Place place_in_b(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8, group};
}
Place place_in_c(int lane, int i) {
  const int group = lane >> 2, in_group = lane % 4;
  return {i < 2 ? group : group + 8, in_group * 2 + (i & 1)};
}

// Small whole numbers, whose sums are exact.
int a_element(int row, int column) { return (5 * row + 3 * column + row * column) % 17 - 8; }
int b_element(int row, int column) { return (7 * row + 2 * column + row * column) % 13 - 6; }
int c_element(int row, int column) { return 3 * row - 5 * column; }

/// What `lane` has of C + A · B, with `depth` columns of A.
template <int depth>
void check_sums(int lane, const float (&c)[4]) {
  for (int i = 0; i < 4; ++i) {
    const Place p = place_in_c(lane, i);
    int sum = c_element(p.row, p.column);
    for (int k = 0; k < depth; ++k) sum += a_element(p.row, k) * b_element(k, p.column);
    BOOST_TEST(c[i] == static_cast<float>(sum), "lane " << lane << ", register " << i);
  }
}

template <Half type, class T>
void check_multiply_add() {
  const auto bits = [](int x) { return static_cast<std::uint32_t>(T(static_cast<float>(x)).bits); };
  run_warp(0, [&](int lane) {
    std::uint32_t a[4] = {}, b[2] = {};
    float c[4];
    for (int i = 0; i < 8; ++i) {
      const Place p = place_in_a(lane, i);
      a[i / 2] |= bits(a_element(p.row, p.column)) << (i % 2 * 16);
    }
    for (int i = 0; i < 4; ++i) {
      const Place p = place_in_b(lane, i);
      b[i / 2] |= bits(b_element(p.row, p.column)) << (i % 2 * 16);
    }
    for (int i = 0; i < 4; ++i) {
      const Place p = place_in_c(lane, i);
      c[i] = static_cast<float>(c_element(p.row, p.column));
    }
    cuda::multiply_add<type>(c, a, b[0], b[1]);
    check_sums<16>(lane, c);
  });
}

BOOST_AUTO_TEST_CASE(matrix_fragments) {
  check_multiply_add<Half::bf16, bf16>();
  check_multiply_add<Half::f16, f16>();
}

// The same, "Matrix Fragments for mma.m16n8k8", of .tf32.
BOOST_AUTO_TEST_CASE(matrix_fragments_of_tf32) {
  run_warp(0, [](int lane) {
    const int group = lane >> 2, in_group = lane % 4;
    std::uint32_t a[4], b[2];
    float c[4];
    for (int i = 0; i < 4; ++i) {
      const Place in_a{i == 0 || i == 2 ? group : group + 8, i < 2 ? in_group : in_group + 4};
      a[i] = cuda::float_as_bits(static_cast<float>(a_element(in_a.row, in_a.column)));
      const Place in_c = place_in_c(lane, i);
      c[i] = static_cast<float>(c_element(in_c.row, in_c.column));
    }
    for (int i = 0; i < 2; ++i)
      b[i] = cuda::float_as_bits(static_cast<float>(b_element(i == 0 ? in_group : in_group + 4, group)));
    a[0] |= 0x1fff;  // ignored
    cuda::multiply_add_tf32(c, a, b[0], b[1]);
    check_sums<8>(lane, c);
  });
}

// What is added to 1 in turn, and what is added at once.
BOOST_AUTO_TEST_CASE(tensor_cores_cut_off_what_they_add) {
  run_warp(0, [](int lane) {
    const std::uint32_t one = cuda::float_as_bits(1), a[4] = {one, one, one, one};
    const auto sum_with = [&](float c0, float b) {
      float c[4] = {c0, c0, c0, c0};
      cuda::multiply_add_tf32(c, a, lane % 4 == 0 ? cuda::float_as_bits(b) : 0, 0);
      return c[0];
    };
    BOOST_TEST(sum_with(1, 0x1.8p-24f) == 1);  // the nearest float is 1 + 2⁻²³
    BOOST_TEST(sum_with(-1, -0x1.8p-24f) == -1);
    BOOST_TEST(sum_with(1, 0x1p-23f) == 1 + 0x1p-23f);
  });
}

BOOST_AUTO_TEST_CASE(refused_devices) {
  BOOST_TEST(cuda::capability_refusal(80, 75) == "it needs compute capability >= 8.0, this device is 7.5");
  BOOST_TEST(cuda::capability_refusal(90, 89) == "it needs compute capability >= 9.0, this device is 8.9");
  BOOST_TEST(cuda::capability_refusal(100, 90) == "it needs compute capability >= 10.0, this device is 9.0");
  for (const int present : {80, 86, 89, 90, 120}) BOOST_TEST(cuda::capability_refusal(80, present).empty());
}

BOOST_AUTO_TEST_CASE(rounds_share_tiles_evenly) {
  constexpr int blocks = 5, rounds = 31, tiles = blocks * rounds;
  std::vector<int> times(tiles), work(blocks);
  for (int block = 0; block < blocks; ++block)
    for (int round = 0; round < rounds; ++round) {
      const int tile = cuda::hopper::tile_of_round(round, block, blocks);
      ++times.at(static_cast<std::size_t>(tile));
      work[static_cast<std::size_t>(block)] += tiles - tile;
    }
  BOOST_TEST((times == std::vector<int>(tiles, 1)));
  // Of the rounds, one has no other that goes the other way.
  BOOST_TEST(*std::max_element(work.begin(), work.end()) - *std::min_element(work.begin(), work.end()) <
             blocks);
}

BOOST_AUTO_TEST_CASE(kernels_of_sm_90a_are_tested_where_they_run) {
  for (const cuda::Machine& m : cuda::machines)
    BOOST_TEST(has_warpgroups(false, m.capability) == (m.capability == 90), m.capability);
  BOOST_TEST(!has_warpgroups(false, 100));
  BOOST_TEST(has_warpgroups(true, 80));
}

// Both parts have 11 digits, and their sum has all but the last of a float.
BOOST_AUTO_TEST_CASE(floats_are_split_in_two) {
  std::mt19937 generator(5);
  std::uniform_real_distribution<float> between(1, 2);
  std::uniform_int_distribution<int> powers(-100, 110);
  const auto check = [](float x) {
    const cuda::SplitFloat s = cuda::split(x);
    BOOST_TEST(((s.high | s.low) & 0x1fffu) == 0u, x);
    const double sum =
        static_cast<double>(cuda::bits_as_float(s.high)) + static_cast<double>(cuda::bits_as_float(s.low));
    BOOST_TEST(std::abs(sum - static_cast<double>(x)) <= std::ldexp(std::abs(static_cast<double>(x)), -22), x);
  };
  for (int i = 0; i < 2000; ++i) {
    const float x = std::ldexp(between(generator), powers(generator));
    check(x), check(-x);
  }
  for (const float x :
       {0.0f, 1.0f, std::nextafter(1.0f, 2.0f), std::nextafter(2.0f, 1.0f), 0x1.ffep0f, 0x1.001p0f})
    check(x);
}

BOOST_AUTO_TEST_CASE(sums_are_doubtful_unless_finite_and_not_tiny) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  using cuda::is_doubtful;
  for (const float x : {infinity, std::numeric_limits<float>::quiet_NaN(), 0x1.8p-101f, 0x1p-149f})
    BOOST_TEST((is_doubtful(x) && is_doubtful(-x)), x);
  for (const float x : {0.0f, 1.0f, 0x1p-100f, std::numeric_limits<float>::max()})
    BOOST_TEST((!is_doubtful(x) && !is_doubtful(-x)), x);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
