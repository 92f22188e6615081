// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kformer/core/error.hpp"

/// \file
/// Random changes of texts and files, and what readers make of them.

namespace kformer::Testing {

using Random = std::mt19937_64;

inline std::size_t below(Random& random, std::size_t end) {
  return std::uniform_int_distribution<std::size_t>(0, end - 1)(random);
}

template <class Items>
const auto& one_of(Random& random, const Items& items) {
  return items[below(random, items.size())];
}

/// Changes, removes or repeats some bytes, or puts one of `pieces` among them or in their place.
template <class Pieces>
std::string mutated(Random& random, std::string text, const Pieces& pieces) {
  if (text.empty()) return one_of(random, pieces);
  const std::size_t place = below(random, text.size());
  const std::size_t length = 1 + below(random, std::min<std::size_t>(text.size() - place, 24));
  switch (below(random, 5)) {
    case 0:
      text[place] = static_cast<char>(below(random, 256));
      break;
    case 1:
      text.erase(place, length);
      break;
    case 2:
      text.insert(place, text.substr(below(random, text.size()), length));
      break;
    case 3:
      text.insert(place, one_of(random, pieces));
      break;
    default:
      text.replace(place, length, one_of(random, pieces));
  }
  return text;
}

/// Pieces of any JSON text, followed by `more`.
inline std::vector<std::string> json_pieces(std::vector<std::string> more) {
  std::vector<std::string> pieces{"{",    "}",    "[",  "]", ",",       ":",   "\"",
                                  "null", "true", "-1", "0", "\\u0000", "\xFF"};
  pieces.insert(pieces.end(), more.begin(), more.end());
  return pieces;
}

/// Calls `read(random)` in `rounds` rounds. It reads something mutated or refuses it with a FileError. Both
/// outcomes must occur, or the mutations are too tame or too wild to try anything: more than `few` and fewer
/// than `many` inputs are accepted.
template <class Read>
void read_mutations(int rounds, int few, int many, Read read) {
  constexpr std::uint64_t seed = 20260101;
  Random random(seed);
  int accepted = 0, refused = 0;
  for (int round = 0; round < rounds; ++round) {
    BOOST_TEST_CONTEXT("seed " << seed << ", round " << round) {
      try {
        read(random);
        ++accepted;
      } catch (const FileError&) {
        ++refused;
      }
    }
  }
  BOOST_TEST_MESSAGE("seed " << seed << ": " << accepted << " of " << rounds << " accepted");
  BOOST_TEST(accepted + refused == rounds);
  BOOST_TEST(accepted > few);
  BOOST_TEST(accepted < many);
}

}  // namespace kformer::Testing
