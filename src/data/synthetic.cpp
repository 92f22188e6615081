// SPDX-License-Identifier: MIT
#include "kformer/data/synthetic.hpp"

#include <algorithm>

#include "kformer/core/error.hpp"

namespace kformer {
namespace {

constexpr std::int64_t most_digits = 18;  // a sum of two still fits into 64 bits

/// SplitMix64 (Steele, Lea and Flood 2014).
class Random {
 public:
  Random(std::uint64_t seed, std::int64_t index) : m_state(seed) {
    m_state = next() + static_cast<std::uint64_t>(index);
  }

  /// Uniform in first … last, up to a bias of 2⁻⁵⁶ for ranges of 256.
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(last - first + 1));
  }

 private:
  std::uint64_t next() {
    m_state += 0x9e3779b97f4a7c15u;
    std::uint64_t mixed = m_state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }

  std::uint64_t m_state;
};

std::string random_letters(Random& random, std::int64_t max_length) {
  std::string letters(static_cast<std::size_t>(random.between(1, max_length)), ' ');
  for (char& letter : letters) letter = static_cast<char>(random.between('a', 'z'));
  return letters;
}

std::int64_t random_number(Random& random, std::int64_t max_digits) {
  const std::int64_t digits = random.between(1, max_digits);
  std::int64_t number = random.between(digits > 1 ? 1 : 0, 9);
  for (std::int64_t i = 1; i < digits; ++i) number = 10 * number + random.between(0, 9);
  return number;
}

}  // namespace

SyntheticSample synthetic_sample(const SyntheticOptions& options, std::int64_t index) {
  const bool sum = options.task == SyntheticTask::sum;
  if (options.max_length < 1 || (sum && options.max_length > most_digits))
    throw Error("kformer::synthetic_sample: max_length is " + std::to_string(options.max_length) +
                "; expected at least 1" + (sum ? ", and for sums at most 18" : ""));
  Random random(options.seed, index);
  if (sum) {
    const std::int64_t a = random_number(random, options.max_length);
    const std::int64_t b = random_number(random, options.max_length);
    return {std::to_string(a) + "+" + std::to_string(b) + "=", std::to_string(a + b)};
  }
  const std::string letters = random_letters(random, options.max_length);
  std::string answer = letters;
  if (options.task == SyntheticTask::reverse) std::ranges::reverse(answer);
  if (options.task == SyntheticTask::sort) std::ranges::sort(answer);
  return {letters + "=", answer};
}

}  // namespace kformer
