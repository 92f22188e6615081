// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>

/// \file
/// Random changes of texts and files.

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

}  // namespace kformer::Testing
