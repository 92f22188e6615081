// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "kformer/core/error.hpp"

/// \file
/// The order in which training reads its sequences. Free of Kokkos.

namespace kformer {

/// Which sequence comes at position 0, 1, 2, … of all epochs: a function of the seed and the position alone, so
/// that every rank and every resumed run computes its own part.
///
/// An epoch is a permutation of all sequences. With shuffling it is a Feistel network (Luby & Rackoff, SIAM J.
/// Comput. 17(2), 1988) on the smallest even number of bits that holds `count`, whose keys are hashes of seed,
/// epoch and round; a number that is out of range is encrypted again until it is in range (cycle walking: Black &
/// Rogaway, CT-RSA 2002). It takes no memory.
class SequenceOrder {
 public:
  /// \param count   the number of sequences
  /// \param shuffle whether every epoch has an order of its own; else all have 0, 1, 2, …
  /// \param seed    of the orders
  /// \throws NotSupported if there is no sequence
  SequenceOrder(std::int64_t count, bool shuffle, std::uint64_t seed)
      : m_count(count), m_shuffle(shuffle), m_seed(mix(seed)) {
    if (count < 1)
      throw NotSupported("kformer::SequenceOrder: expected at least one sequence, got " +
                         std::to_string(count));
    const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1)));
    // Few bits give a network few permutations to choose from.
    m_half = bits > 2 * least_half ? (bits + 1) / 2 : least_half;
  }

  /// The sequence at a position, which counts from 0; its epoch is `position / count`.
  std::int64_t at(std::int64_t position) const {
    const std::int64_t index = position % m_count;
    if (!m_shuffle) return index;
    const std::uint64_t key = mix(m_seed ^ mix(static_cast<std::uint64_t>(position / m_count)));
    std::uint64_t number = static_cast<std::uint64_t>(index);
    do number = permute(key, number);
    while (number >= static_cast<std::uint64_t>(m_count));
    return static_cast<std::int64_t>(number);
  }

 private:
  static constexpr int least_half = 4, rounds = 8;

  // The output function of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014).
  static std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }

  std::uint64_t permute(std::uint64_t key, std::uint64_t number) const {
    const std::uint64_t mask = (std::uint64_t{1} << m_half) - 1;
    std::uint64_t left = number >> m_half, right = number & mask;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint64_t next = left ^ (mix(key + mix(right << 8 | round)) & mask);
      left = right;
      right = next;
    }
    return left << m_half | right;
  }

  std::int64_t m_count;
  bool m_shuffle;
  std::uint64_t m_seed;
  int m_half;
};

}  // namespace kformer
