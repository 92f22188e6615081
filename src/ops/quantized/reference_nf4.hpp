// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/common/host_tensor.hpp"

/// \file
/// NF4 written down a second time, from its publications: it shares neither tables nor functions with the kernels.

namespace kformer::Impl::reference {

/// QLoRA, appendix E; bitsandbytes, `get_4bit_type("nf4")`.
inline constexpr double nf4_table[16] = {-1.0,
                                         -0.6961928009986877,
                                         -0.5250730514526367,
                                         -0.39491748809814453,
                                         -0.28444138169288635,
                                         -0.18477343022823334,
                                         -0.09105003625154495,
                                         0.0,
                                         0.07958029955625534,
                                         0.16093020141124725,
                                         0.24611230194568634,
                                         0.33791524171829224,
                                         0.44070982933044434,
                                         0.5626170039176941,
                                         0.7229568362236023,
                                         1.0};

/// bitsandbytes, `create_dynamic_map()`, in float with the fused multiply-adds of PyTorch's `linspace`.
inline std::vector<float> dynamic_map() {
  std::vector<float> map{0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 1 << decade;
    const float step = (1.0f - 0.1f) / static_cast<float>(parts);
    const auto boundary = [&](int i) {
      return i < (parts + 1) / 2 ? std::fma(step, static_cast<float>(i), 0.1f)
                                 : std::fma(-step, static_cast<float>(parts - i), 1.0f);
    };
    for (int i = 0; i < parts; ++i) {
      const float middle = (boundary(i) + boundary(i + 1)) / 2;
      const float value = static_cast<float>(std::pow(10.0, decade - 6)) * middle;
      map.push_back(value);
      map.push_back(-value);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

/// The place of a block, and of what is behind the matrix.
struct Nf4Layout {
  std::int64_t rows, cols;
  std::int64_t blocks_of_row = (cols + 63) / 64;
  std::int64_t blocks = rows * blocks_of_row;

  std::int64_t block(std::int64_t row, std::int64_t col) const { return row * blocks_of_row + col / 64; }
  std::int64_t offset_at() const { return 33 * blocks; }
  std::int64_t nested_at(std::int64_t block) const { return 33 * blocks + 4 + 4 * (block / 256); }
};

/// Each operation by itself, whatever the compiler would contract.
inline float rounded_product(float a, float b) {
  volatile float product = a * b;
  return product;
}

/// The scale of a block.
inline float nf4_block_scale(const std::uint8_t* data, const Nf4Layout& layout, std::int64_t block,
                             const std::vector<float>& map) {
  const auto number = [&](std::int64_t at) {
    float x = 0;
    std::memcpy(&x, data + at, sizeof(x));
    return x;
  };
  const float value = map[data[33 * block]];
  return rounded_product(value, number(layout.nested_at(block))) + number(layout.offset_at());
}

/// The weights, each as it would be stored as `Store`.
template <class Real, class Store>
HostTensor<Real> dequantize_nf4(const std::uint8_t* data, std::int64_t rows, std::int64_t cols) {
  HostTensor<Real> y({rows, cols});
  const Nf4Layout layout{rows, cols};
  const std::vector<float> map = dynamic_map();
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::int64_t block = layout.block(row, col), place = col % 64;
      const int pair = data[33 * block + 1 + place / 2];
      const auto value = static_cast<float>(nf4_table[place % 2 == 0 ? pair / 16 : pair % 16]);
      y(row, col) = stored<Store>(static_cast<Real>(nf4_block_scale(data, layout, block, map)) *
                                  static_cast<Real>(value));
    }
  return y;
}

/// The code of `x` in a sorted table: how many of the middles of neighbours, in float, are below it.
template <class Table>
int code_by_middles(const Table& table, float x) {
  int code = 0;
  for (std::size_t i = 0; i + 1 < std::size(table); ++i) {
    const volatile float sum = static_cast<float>(table[i]) + static_cast<float>(table[i + 1]);
    code += x > sum / 2 ? 1 : 0;
  }
  return code;
}

/// The bytes of a matrix, `offset` given or, where it is null, the mean of the absmax.
inline std::vector<std::uint8_t> quantize_nf4(const HostTensor<float>& x, const float* offset = nullptr) {
  const Nf4Layout layout{x.extent(0), x.extent(1)};
  const std::int64_t groups = (layout.blocks + 255) / 256;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(33 * layout.blocks + 4 * groups + (groups ? 4 : 0)));
  const auto store = [&](std::int64_t at, float value) { std::memcpy(&bytes[at], &value, sizeof(value)); };
  std::vector<float> absmax(static_cast<std::size_t>(layout.blocks));
  double sum = 0;
  for (std::int64_t row = 0; row < layout.rows; ++row)
    for (std::int64_t first = 0; first < layout.cols; first += 64) {
      const std::int64_t block = layout.block(row, first), end = std::min(layout.cols, first + 64);
      float& most = absmax[block];
      for (std::int64_t i = first; i < end; ++i) most = std::max(most, std::abs(x(row, i)));
      sum += most;
      const float by_absmax = 1 / std::max(most, 1e-38f);
      for (std::int64_t i = first; i < first + 64; ++i) {
        const int code = code_by_middles(nf4_table, i < end ? rounded_product(x(row, i), by_absmax) : 0);
        bytes[33 * block + 1 + (i - first) / 2] |= static_cast<std::uint8_t>(i % 2 == 0 ? code * 16 : code);
      }
    }
  if (layout.blocks == 0) return bytes;
  const float mean = offset ? *offset : static_cast<float>(sum / static_cast<double>(layout.blocks));
  store(layout.offset_at(), mean);
  const std::vector<float> map = dynamic_map();
  for (std::int64_t first = 0; first < layout.blocks; first += 256) {
    const std::int64_t end = std::min(layout.blocks, first + 256);
    float nested = 0;
    for (std::int64_t b = first; b < end; ++b) nested = std::max(nested, std::abs(absmax[b] - mean));
    store(layout.nested_at(first), nested);
    for (std::int64_t b = first; b < end; ++b)
      bytes[33 * b] = static_cast<std::uint8_t>(
          code_by_middles(map, rounded_product(absmax[b] - mean, 1 / std::max(nested, 1e-38f))));
  }
  return bytes;
}

}  // namespace kformer::Impl::reference
