// SPDX-License-Identifier: MIT
// Texts for the examples that train: numbers that count in circles.
#pragma once

#include <vector>

#include "kformer/train/token_sequence.hpp"

constexpr int numbers = 10, length = 12;

// 7 8 9 0 1 ...: after the first number, the next ones are known.
inline std::vector<kformer::TokenSequence> circles() {
  std::vector<kformer::TokenSequence> batch(numbers);
  for (int first = 0; first < numbers; ++first)
    for (int i = 0; i < length; ++i) {
      batch[first].ids.push_back((first + i) % numbers);
      batch[first].targets.push_back((first + i + 1) % numbers);
    }
  return batch;
}
