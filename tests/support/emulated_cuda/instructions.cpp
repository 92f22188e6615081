// SPDX-License-Identifier: MIT
// The instructions on the emulated block, from the descriptions of the PTX ISA.
#include "ops/common/cuda/instructions.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kformer/core/scalar.hpp"
#include "ops/common/cuda/tf32_instructions.hpp"

namespace kformer::Impl::cuda {

using emulation::Block;

namespace {

int lane() { return thread_index() % emulation::warp_threads; }

template <Half type>
using Stored = std::conditional_t<type == Half::bf16, bf16, f16>;

// Every lane gives the address of a row of a matrix; `element(matrix, i, k)` is what this lane gets.
struct Rows {
  std::uint16_t of[8];
};
const Rows* exchange_rows(SharedAddress row) {
  Rows rows;
  std::memcpy(&rows, Block::current().shared(row, sizeof(rows)), sizeof(rows));
  return Block::current().exchange(rows);
}

}  // namespace

void block_barrier() {
  Block& block = Block::current();
  block.barrier(0, block.threads());
}

void warp_barrier() { Block::current().exchange(0); }

bool any_of_block(bool mine) { return Block::current().any(mine); }

void copy_async(SharedAddress to, const void* from, int bytes) {
  Block& block = Block::current();
  block.check_global(from, 16);
  std::byte* place = block.shared(to, 16);
  block.later([=] {
    std::memset(place, 0, 16);
    std::memcpy(place, from, static_cast<std::size_t>(bytes));
  });
}

void load_matrices(std::uint32_t (&r)[4], SharedAddress row) {
  const Rows* rows = exchange_rows(row);
  for (int matrix = 0; matrix < 4; ++matrix) {
    const Rows& mine = rows[8 * matrix + lane() / 4];
    const int column = 2 * (lane() % 4);
    r[matrix] = mine.of[column] | static_cast<std::uint32_t>(mine.of[column + 1]) << 16;
  }
}

void load_matrices_transposed(std::uint32_t (&r)[4], SharedAddress row) {
  const Rows* rows = exchange_rows(row);
  for (int matrix = 0; matrix < 4; ++matrix) {
    const int column = lane() / 4, first = 8 * matrix + 2 * (lane() % 4);
    r[matrix] = rows[first].of[column] | static_cast<std::uint32_t>(rows[first + 1].of[column]) << 16;
  }
}

template <Half type>
std::uint32_t pack(float low, float high) {
  return Stored<type>(low).bits | static_cast<std::uint32_t>(Stored<type>(high).bits) << 16;
}
template <Half type>
float unpack(std::uint16_t bits) {
  Stored<type> x;
  x.bits = bits;
  return static_cast<float>(x);
}

template <Half type>
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct Registers {
    std::uint32_t a[4], b[2];
  };
  const Registers* of = Block::current().exchange(Registers{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const auto half = [](std::uint32_t both, int k) {
    return static_cast<double>(unpack<type>(static_cast<std::uint16_t>(both >> 16 * (k % 2))));
  };
  // Row r and column k of a stand in register (r/8) + 2(k/8) of lane 4(r mod 8) + (k mod 8)/2; row k and column
  // n of b in register k/8 of lane 4n + (k mod 8)/2; registers of c are rows lane/4 and lane/4 + 8, two columns
  // each.
  double row[2][16], column[2][16];
  const int first_row = lane() / 4, first_column = 2 * (lane() % 4);
  for (int k = 0; k < 16; ++k)
    for (int i = 0; i < 2; ++i) {
      row[i][k] = half(of[4 * first_row + k % 8 / 2].a[i + 2 * (k / 8)], k);
      column[i][k] = half(of[4 * (first_column + i) + k % 8 / 2].b[k / 8], k);
    }
  for (int i = 0; i < 4; ++i) {
    double sum = 0;
    for (int k = 0; k < 16; ++k) sum += row[i / 2][k] * column[i % 2][k];
    c[i] = static_cast<float>(sum + static_cast<double>(c[i]));
  }
}

namespace {

double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

// The sum of float and products as tensor cores add, at their worst: each term loses what is below 24 digits of the largest,
// and the sum what a float does not hold (Fasi, Higham, Mikaitis, Pranesh, PeerJ Computer Science 7:e330, 2021).
float cut_sum(const double (&term)[9]) {
  double largest = 0, sum = 0;
  for (const double x : term) {
    largest = std::max(largest, std::fabs(x));
    sum += x;
  }
  if (!std::isfinite(sum) || largest == 0) return static_cast<float>(sum);
  const int exponent = std::max(std::ilogb(largest) - 23, -149);
  const double per_unit = power_of_two(-exponent);
  std::int64_t units = 0;  // terms have at most 24 digits before the point, or are smaller than any float
  for (const double x : term) units += static_cast<std::int64_t>(x * per_unit);
  sum = static_cast<double>(units) * power_of_two(exponent);
  const float near = static_cast<float>(sum);
  return std::fabs(static_cast<double>(near)) > std::fabs(sum) ? std::nextafter(near, 0.0f) : near;
}

}  // namespace

void multiply_add_tf32(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  struct Registers {
    std::uint32_t a[4], b[2];
  };
  const Registers* of = Block::current().exchange(Registers{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const auto value = [](std::uint32_t bits) { return static_cast<double>(bits_as_float(bits & 0xffffe000u)); };
  // Row r and column k of a stand in register r/8 + 2(k/4) of lane 4(r mod 8) + k mod 4; row k and column n of b in register
  // k/4 of lane 4n + k mod 4; c as above.
  double row[2][8], column[2][8];
  const int first_row = lane() / 4, first_column = 2 * (lane() % 4);
  for (int k = 0; k < 8; ++k)
    for (int i = 0; i < 2; ++i) {
      row[i][k] = value(of[4 * first_row + k % 4].a[i + 2 * (k / 4)]);
      column[i][k] = value(of[4 * (first_column + i) + k % 4].b[k / 4]);
    }
  for (int i = 0; i < 4; ++i) {
    double term[9];
    for (int k = 0; k < 8; ++k) term[k] = row[i / 2][k] * column[i % 2][k];
    term[8] = static_cast<double>(c[i]);
    c[i] = cut_sum(term);
  }
}

float shuffle_xor(float x, int lanes) { return Block::current().exchange(x)[lane() ^ lanes]; }
double shuffle_xor(double x, int lanes) { return Block::current().exchange(x)[lane() ^ lanes]; }
std::uint32_t shuffle(std::uint32_t x, int from) { return Block::current().exchange(x)[from]; }
std::uint32_t largest_of_warp(std::uint32_t x) {
  const std::uint32_t* all = Block::current().exchange(x);
  return *std::max_element(all, all + emulation::warp_threads);
}
std::uint32_t lanes_of_warp(bool mine) {
  const bool* all = Block::current().exchange(mine);
  std::uint32_t lanes = 0;
  for (int lane = 0; lane < emulation::warp_threads; ++lane) lanes |= std::uint32_t(all[lane]) << lane;
  return lanes;
}

template std::uint32_t pack<Half::bf16>(float, float);
template std::uint32_t pack<Half::f16>(float, float);
template float unpack<Half::bf16>(std::uint16_t);
template float unpack<Half::f16>(std::uint16_t);
template void multiply_add<Half::bf16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t, std::uint32_t);
template void multiply_add<Half::f16>(float (&)[4], const std::uint32_t (&)[4], std::uint32_t, std::uint32_t);

}  // namespace kformer::Impl::cuda
