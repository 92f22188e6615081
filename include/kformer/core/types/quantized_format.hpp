// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// Storage of blocks of weights; `d` and `m` are binary16, `q` are integers.
///
/// | format | weights | bytes | a block | weight |
/// |---|---|---|---|---|
/// | q8_0 | 32 | 34 | d, 32 int8 | d·q |
/// | q4_0 | 32 | 18 | d, 16 bytes: weights 0…15 in the low, 16…31 in the high four bits | d·(q − 8) |
/// | q4_1 | 32 | 20 | d, m, 16 bytes in the same order | d·q + m |
/// | tq2_0 | 256 | 66 | 64 bytes, d | d·(q − 1) |
/// | tq1_0 | 256 | 54 | 48 bytes, 4 bytes, d | d·(q − 1) |
/// | nf4 | 64 | 33 | a, 32 bytes of two q: the first weight in the high four bits | s·v(q) |
///
/// tq2_0 keeps weight `128·h + 32·n + k` in bits 2n, 2n+1 of byte `32·h + k`.
/// tq1_0 keeps five base-3 digits per byte, the first one most significant, as `⌈256·value/243⌉`, so that digit
/// n is the integer part of three times the fraction of `byte·3ⁿ/256`. Weight `32·n + k` below 160 is digit n
/// of byte k, weight `160 + 16·n + k` below 240 is digit n of byte 32 + k, and weight `240 + 4·n + k` is digit
/// n of byte 48 + k, whose last digit is 0.
///
/// nf4 is the 4-bit NormalFloat with double quantisation of QLoRA (Dettmers et al., arXiv:2305.14314) as bitsandbytes has
/// it. GGUF files do not have it. `v` are the 16 values of its table. Behind its rows the matrix has floats: the offset
/// `m`, then one `n` per 256 blocks, counted through the matrix row after row. A block's scale is `s = n·D(a) + m`, the
/// product and the sum each rounded to float; `D` are the 256 values of the signed dynamic map.
enum class QuantizedFormat { q8_0, q4_0, q4_1, tq2_0, tq1_0, nf4 };
/// The names of the enumerators, in order: those of GGUF files, and NF4.
template <>
inline constexpr std::array<std::string_view, 6> names_of<QuantizedFormat> = {"Q8_0",  "Q4_0",  "Q4_1",
                                                                              "TQ2_0", "TQ1_0", "NF4"};

}  // namespace kformer
