// SPDX-License-Identifier: MIT
#include "support/emulated_amx/tiles.hpp"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace kformer::Testing::emulated_amx {

namespace {

constexpr int registers = 8, most_rows = 16, most_bytes = 64;

struct Tile {
  int rows = 0, row_bytes = 0;
  std::uint8_t data[most_rows][most_bytes] = {};

  template <class T>
  T at(int row, int column) const {
    T value;
    std::memcpy(&value, data[row] + column * sizeof(T), sizeof(T));
    return value;
  }
  void clear() { std::memset(data, 0, sizeof(data)); }
};

struct Registers {
  bool configured = false;
  Tile tiles[registers];
};
thread_local Registers of_thread;

std::atomic<int> in_use{0};
std::atomic<std::int64_t> all_configurations{0}, all_products{0};

void require(bool condition, const char* instruction, const char* fault) {
  if (!condition) throw std::logic_error(std::string(instruction) + ": " + fault);
}

void set_configured(bool now) {
  in_use += static_cast<int>(now) - static_cast<int>(of_thread.configured);
  of_thread.configured = now;
}

Tile& configured(int tile, const char* instruction) {
  require(of_thread.configured, instruction, "no tiles are configured");
  Tile& t = of_thread.tiles[tile];
  require(t.rows > 0, instruction, "this tile is not configured");
  return t;
}

// Subnormal numbers are zeros, as operands and as results.
float flushed(float x) { return std::abs(x) < FLT_MIN ? std::copysign(0.0F, x) : x; }
float sum_of(float a, float b) { return flushed(flushed(a) + flushed(b)); }

/// The numbers of a tile of bf16.
struct Numbers {
  float at[most_rows][most_bytes / 2];

  explicit Numbers(const Tile& t) {
    for (int r = 0; r < t.rows; ++r)
      for (int c = 0; c < t.row_bytes / 2; ++c) {
        const std::uint32_t bits = std::uint32_t(t.at<std::uint16_t>(r, c)) << 16;
        std::memcpy(&at[r][c], &bits, sizeof(bits));
        at[r][c] = flushed(at[r][c]);
      }
  }
};

}  // namespace

void ldtilecfg(const kformer::Impl::host::TileConfiguration& all) {
  const char* name = "ldtilecfg";
  if (all.palette == 0) return tilerelease();
  require(all.palette == 1, name, "there are palettes 0 and 1");
  require(all.start_row == 0, name, "it starts in the middle");
  require(std::ranges::all_of(all.reserved, [](int byte) { return byte == 0; }), name,
          "reserved bytes are not 0");
  for (int i = 0; i < 16; ++i) {
    const int rows = all.rows[i], bytes = all.row_bytes[i];
    require(i < registers || (rows == 0 && bytes == 0), name, "there are eight tiles");
    require(rows <= most_rows && bytes <= most_bytes, name, "a tile is too large");
    require((rows == 0) == (bytes == 0), name, "a tile has rows without bytes, or bytes without rows");
  }
  for (int i = 0; i < registers; ++i) of_thread.tiles[i] = {all.rows[i], all.row_bytes[i]};
  set_configured(true);
  ++all_configurations;
}

void tilerelease() {
  for (Tile& t : of_thread.tiles) t = {};
  set_configured(false);
}

void tilezero(int tile) { configured(tile, "tilezero").clear(); }

void tileloadd(int tile, const void* from, std::int64_t stride) {
  Tile& t = configured(tile, "tileloadd");
  t.clear();
  for (int r = 0; r < t.rows; ++r)
    std::memcpy(t.data[r], static_cast<const std::uint8_t*>(from) + r * stride,
                static_cast<std::size_t>(t.row_bytes));
}

void tilestored(int tile, void* to, std::int64_t stride) {
  const Tile& t = configured(tile, "tilestored");
  for (int r = 0; r < t.rows; ++r)
    std::memcpy(static_cast<std::uint8_t*>(to) + r * stride, t.data[r], static_cast<std::size_t>(t.row_bytes));
}

void tdpbf16ps(int sum, int left, int right) {
  const char* name = "tdpbf16ps";
  Tile& c = configured(sum, name);
  const Tile &a = configured(left, name), &b = configured(right, name);
  require(sum != left && sum != right && left != right, name, "its tiles are not three different ones");
  require(a.row_bytes % 4 == 0 && b.row_bytes % 4 == 0 && c.row_bytes % 4 == 0, name,
          "a row has half a number");
  require(a.rows == c.rows && b.row_bytes == c.row_bytes && b.rows == a.row_bytes / 4, name,
          "the shapes of its tiles do not match");
  const Numbers left_numbers(a), right_numbers(b);
  std::int64_t multiplied = 0;
  for (int m = 0; m < c.rows; ++m) {
    float row[most_bytes / 4] = {};
    for (int n = 0; n < c.row_bytes / 4; ++n) {
      float even = 0, odd = 0;
      for (int k = 0; k < b.rows; ++k) {
        even = flushed(std::fma(left_numbers.at[m][2 * k], right_numbers.at[k][2 * n], even));
        odd = flushed(std::fma(left_numbers.at[m][2 * k + 1], right_numbers.at[k][2 * n + 1], odd));
        multiplied += 2;
      }
      row[n] = sum_of(c.at<float>(m, n), sum_of(even, odd));
    }
    std::memcpy(c.data[m], row, sizeof(row));
  }
  all_products += multiplied;
}

int threads_in_use() { return in_use; }
std::int64_t configurations() { return all_configurations; }
std::int64_t products() { return all_products; }

}  // namespace kformer::Testing::emulated_amx
