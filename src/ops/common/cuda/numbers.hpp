// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kformer/core/types/dtype.hpp"
#include "ops/common/cuda/instructions.hpp"

/// \file
/// Numbers in memory, several per access: memory-bound kernels read 16 bytes at a time.

namespace kformer::Impl::cuda {

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

/// The type of arithmetic of numbers stored as T.
template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Numbers in 16 bytes.
template <class T>
inline constexpr int per_chunk = 16 / static_cast<int>(sizeof(T));

KFORMER_DEVICE float widened(float x) { return x; }
KFORMER_DEVICE double widened(double x) { return x; }
KFORMER_DEVICE float widened(Bf16 x) { return unpack<Half::bf16>(x.bits); }
KFORMER_DEVICE float widened(F16 x) { return unpack<Half::f16>(x.bits); }

KFORMER_DEVICE void narrow(float x, float& to) { to = x; }
KFORMER_DEVICE void narrow(double x, double& to) { to = x; }
KFORMER_DEVICE void narrow(float x, Bf16& to) { to.bits = static_cast<std::uint16_t>(pack<Half::bf16>(x, 0)); }
KFORMER_DEVICE void narrow(float x, F16& to) { to.bits = static_cast<std::uint16_t>(pack<Half::f16>(x, 0)); }

/// Words of 32 bits that n numbers take.
template <class T, int n>
inline constexpr int words_of = n * static_cast<int>(sizeof(T)) / 4;

/// n numbers in 8 or 16 bytes, as they were loaded.
template <class T, int n>
KFORMER_DEVICE void widen(const Words<words_of<T, n>>& words, Arithmetic<T> (&x)[n]) {
  if constexpr (sizeof(T) == 2) {
    constexpr Half half = std::is_same_v<T, Bf16> ? Half::bf16 : Half::f16;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i)
      x[i] = unpack<half>(static_cast<std::uint16_t>(words.word[i / 2] >> 16 * (i % 2)));
  } else {
    memcpy(x, words.word, sizeof(x));
  }
}
/// Rounds to nearest.
template <class T, int n>
KFORMER_DEVICE Words<words_of<T, n>> narrowed(const Arithmetic<T> (&x)[n]) {
  Words<words_of<T, n>> words;
  if constexpr (sizeof(T) == 2) {
    constexpr Half half = std::is_same_v<T, Bf16> ? Half::bf16 : Half::f16;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n / 2; ++i) words.word[i] = pack<half>(x[2 * i], x[2 * i + 1]);
  } else {
    memcpy(words.word, x, sizeof(x));
  }
  return words;
}

/// n numbers, aligned to their total size.
template <class T, int n>
KFORMER_DEVICE void load_numbers(const T* from, Arithmetic<T> (&x)[n]) {
  widen<T, n>(load_words<words_of<T, n>>(from), x);
}
template <class T, int n>
KFORMER_DEVICE void store_numbers(T* to, const Arithmetic<T> (&x)[n]) {
  store_words(to, narrowed<T, n>(x));
}

/// A row in chunks of 16 bytes, and the numbers before and behind them.
template <class T>
struct ChunkedRow {
  int head, chunks, tail;

  KFORMER_DEVICE ChunkedRow(const T* row, int length) {
    const int beyond = static_cast<int>(reinterpret_cast<std::uintptr_t>(row) % 16 / sizeof(T));
    head = beyond == 0 ? 0 : per_chunk<T> - beyond;
    if (head > length) head = length;
    chunks = (length - head) / per_chunk<T>;
    tail = length - head - chunks * per_chunk<T>;
  }
  /// The place of number `i` of those in no chunk.
  KFORMER_DEVICE int loose(int i) const { return i < head ? i : i + chunks * per_chunk<T>; }
};

/// `f.template operator()<T>()` with the type of stored numbers, of which the arithmetic is float.
template <class F>
void with_float_number(DType type, F f) {
  if (type == DType::f32)
    f.template operator()<float>();
  else if (type == DType::bf16)
    f.template operator()<Bf16>();
  else
    f.template operator()<F16>();
}
/// With any.
template <class F>
void with_number_type(DType type, F f) {
  if (type == DType::f64)
    f.template operator()<double>();
  else
    with_float_number(type, f);
}

}  // namespace kformer::Impl::cuda
