// SPDX-License-Identifier: MIT
#pragma once

#include "core/nf4_tables.hpp"
#include "ops/quantized/cuda/arguments.hpp"

/// \file
/// Quantised weights in registers. A word of 32 bits of a block has the codes of `groups` times four weights
/// that are neighbours; a group is a word with a code in each byte.

namespace kformer::Impl::cuda {

/// Where a block has what. A weight is `scale·(code − shift) + offset`, and of NF4 `scale·value(code)`.
template <QuantizedFormat format>
struct BlockLayout {
  static constexpr bool ternary = is_ternary(format), table = format == QuantizedFormat::nf4;
  static constexpr bool nibbles = format == QuantizedFormat::q4_0 || format == QuantizedFormat::q4_1;
  static constexpr bool has_offset = format == QuantizedFormat::q4_1;
  static constexpr int weights = static_cast<int>(weights_per_block(format));
  static constexpr int bytes = static_cast<int>(bytes_per_block(format));
  static constexpr int scale_at = ternary ? bytes - 2 : 0;
  static constexpr int codes_at = ternary ? 0 : table ? 1 : has_offset ? 4 : 2;
  static constexpr int words = (bytes - (table ? 1 : has_offset ? 4 : 2)) / 4;
  static constexpr int groups = format == QuantizedFormat::q8_0    ? 1
                                : format == QuantizedFormat::tq2_0 ? 4
                                : format == QuantizedFormat::tq1_0 ? 5
                                                                   : 2;
  static constexpr int shift = format == QuantizedFormat::q4_0 ? 8 : ternary ? 1 : 0;
  /// Blocks of a row of W that are copied at once: about as many words as keep a warp busy.
  static constexpr int blocks_per_pass = ternary && groups == 4 ? 8 : ternary || table ? 16 : 32;

  /// The first weight of group `group` of word `word` in the block.
  KFORMER_DEVICE static int place(int word, int group) {
    if constexpr (format == QuantizedFormat::q8_0)
      return 4 * word;
    else if constexpr (nibbles)
      return 4 * word + 16 * group;
    else if constexpr (table)
      return 8 * word + 4 * group;
    else if constexpr (format == QuantizedFormat::tq2_0)
      return 128 * (word / 8) + 4 * (word % 8) + 32 * group;
    else if (word < 8)
      return 4 * word + 32 * group;
    else if (word < 12)
      return 160 + 4 * (word - 8) + 16 * group;
    else
      return 240 + 4 * group;
  }
  /// Whether a word has the group: the last four bytes of TQ1_0 have one less.
  KFORMER_DEVICE static bool has(int word, int group) {
    return format != QuantizedFormat::tq1_0 || word < 12 || group < 4;
  }
};

/// The groups of a word. Codes are not negative but those of Q8_0, which are signed bytes.
template <QuantizedFormat format>
KFORMER_DEVICE void split_codes(std::uint32_t word, std::uint32_t (&code)[BlockLayout<format>::groups]) {
  using Layout = BlockLayout<format>;
  if constexpr (format == QuantizedFormat::q8_0) {
    code[0] = word;
  } else if constexpr (Layout::nibbles) {
    code[0] = word & 0x0f0f0f0fu;
    code[1] = word >> 4 & 0x0f0f0f0fu;
  } else if constexpr (Layout::table) {
    const std::uint32_t first = word >> 4 & 0x0f0f0f0fu, second = word & 0x0f0f0f0fu;
    code[0] = select_bytes(first, second, 0x5140);
    code[1] = select_bytes(first, second, 0x7362);
  } else if constexpr (format == QuantizedFormat::tq2_0) {
    KFORMER_DEVICE_UNROLL
    for (int g = 0; g < Layout::groups; ++g) code[g] = word >> 2 * g & 0x03030303u;
  } else {
    // Bytes are fractions of 256; what three times a fraction has before the point is the next digit.
    std::uint32_t even = word & 0x00ff00ffu, odd = word >> 8 & 0x00ff00ffu;
    KFORMER_DEVICE_UNROLL
    for (int g = 0; g < Layout::groups; ++g) {
      even *= 3, odd *= 3;
      code[g] = (even >> 8 & 0x00ff00ffu) | (odd & 0xff00ff00u);
      even &= 0x00ff00ffu, odd &= 0x00ff00ffu;
    }
  }
}

/// 32 bits at any address.
KFORMER_DEVICE std::uint32_t load_shared_word(SharedAddress from) {
  const SharedAddress at = from & ~SharedAddress(3);
  return shift_right(load_shared<std::uint32_t>(at), load_shared<std::uint32_t>(at + 4),
                     8 * static_cast<int>(from - at));
}

/// The scale and the offset of a block of integers.
struct BlockNumbers {
  float scale, offset;
};
template <QuantizedFormat format>
KFORMER_DEVICE BlockNumbers block_numbers(SharedAddress block) {
  const std::uint32_t halves = load_shared_word(block + BlockLayout<format>::scale_at);
  return {unpack<Half::f16>(static_cast<std::uint16_t>(halves)),
          BlockLayout<format>::has_offset ? unpack<Half::f16>(static_cast<std::uint16_t>(halves >> 16)) : 0};
}

/// The weights of a word of integers. A byte of a code becomes the mantissa of 1 + code/unit by itself, and
/// one operation takes it to `scale·(code − shift)`, which all steps have exactly: no factor has more bits
/// than hold.
template <QuantizedFormat format>
struct IntegerWeights {
  static constexpr bool wide = format == QuantizedFormat::q8_0;
  static constexpr float unit = wide ? 0x1p15f : 0x1p7f;
  /// Codes are made positive.
  static constexpr int bias = wide ? 128 : BlockLayout<format>::shift;

  BlockNumbers numbers;
  std::uint32_t code[BlockLayout<format>::groups];

  KFORMER_DEVICE void operator()(int group, float (&w)[4]) const {
    const std::uint32_t codes = wide ? code[group] ^ 0x80808080u : code[group] | 0x80808080u;
    const float slope = unit * numbers.scale, start = -(unit + bias) * numbers.scale;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto place = static_cast<std::uint32_t>(i);
      const float mantissa = bits_as_float(wide ? select_bytes(codes, 0x3f800000u, 0x7604u | place << 4)
                                                : select_bytes(codes, 0x3f000000u, 0x7044u | place << 8));
      w[i] = fused_multiply_add(mantissa, slope, start);
      if constexpr (BlockLayout<format>::has_offset) w[i] += numbers.offset;
    }
  }
};

/// The values of the codes of NF4 in shared memory: a lookup meets no other bank twice.
struct Nf4Table {
  static constexpr int bytes = 16 * 4;
  SharedAddress at;

  /// By one warp.
  KFORMER_DEVICE static Nf4Table store(SharedAddress at) {
    static constexpr Nf4Values values = nf4_values;
    const int lane = thread_index() % 32;
    if (lane < 16) store_shared(at + 4 * static_cast<SharedAddress>(lane), values.of[lane]);
    warp_barrier();
    return {at};
  }
};
struct Nf4Weights {
  Nf4Table table;
  float scale;
  std::uint32_t code[2];

  KFORMER_DEVICE void operator()(int group, float (&w)[4]) const {
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i)
      w[i] = rounded_product(scale, load_shared<float>(table.at + (code[group] >> 8 * i & 255) * 4));
  }
};

/// A float at any address.
KFORMER_DEVICE float load_float(const std::uint8_t* from) {
  std::uint32_t bits = 0;
  KFORMER_DEVICE_UNROLL
  for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(from[i]) << 8 * i;
  return bits_as_float(bits);
}

/// The values of the codes of absmax that are not negative. As floats, which they are: a product of floats
/// rounds as that of doubles, rounded to float.
struct Nf4Absmax {
  float of[129];
};
inline constexpr Nf4Absmax nf4_absmax = [] {
  Nf4Absmax values{};
  for (int i = 0; i < 129; ++i) values.of[i] = static_cast<float>(nf4_absmax_values.of[i]);
  return values;
}();

/// The scales of a row of blocks of NF4: see ops/quantized/nf4.hpp. Neighbours share the nested one.
struct Nf4Scales {
  static constexpr std::int64_t blocks_per_nested = 256;

  const std::uint8_t* tail;
  float offset, nested;
  std::int64_t group;

  KFORMER_DEVICE explicit Nf4Scales(const std::uint8_t* behind_codes)
      : tail(behind_codes), offset(load_float(behind_codes)), nested(0), group(-1) {}

  /// Of block `number` of the matrix, by the code of its absmax.
  KFORMER_DEVICE float of(int code, std::int64_t number) {
    static constexpr Nf4Absmax values = nf4_absmax;
    if (number / blocks_per_nested != group) {
      group = number / blocks_per_nested;
      nested = load_float(tail + 4 * (1 + group));
    }
    return rounded_product(code < 127 ? -values.of[127 - code] : values.of[code - 127], nested) + offset;
  }
};

}  // namespace kformer::Impl::cuda
