// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <random>

#include "support/compare.hpp"
#include "support/test_tensor.hpp"

/// \file
/// How often the tolerance rule rejects what is right: random problems through every kernel of a block. More of them than a test
/// needs, with what was judged (docs/tolerance.md):
/// KFORMER_DRAWS=10000 kformer_tests_openmp --run_test='*/no_kernel_is_rejected*' --log_level=message

namespace kformer::Testing {

/// What a problem is drawn from.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : m_generator(seed) {}

  std::int64_t any(std::int64_t first, std::int64_t last) {
    return std::uniform_int_distribution<std::int64_t>(first, last)(m_generator);
  }
  /// True once in n calls.
  bool one_in(std::int64_t n) { return any(1, n) == 1; }
  template <class List>
  auto one_of(const List& list) {
    return *(std::begin(list) + any(0, static_cast<std::int64_t>(std::size(list)) - 1));
  }
  /// A standard deviation: a power of two from 1/8 to 8.
  double spread() { return std::exp2(static_cast<double>(any(-3, 3))); }
  Rows rows() { return one_of(std::array{Rows::strided, Rows::packed, Rows::aligned}); }
  std::uint32_t seed() { return static_cast<std::uint32_t>(m_generator()); }

 private:
  std::mt19937 m_generator;
};

/// What `compare` says while it lives.
struct Counting {
  Tally tally;

  Counting() { counted_in = &tally; }
  ~Counting() { counted_in = nullptr; }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;
};

/// Calls `judge(draw)` for one problem after another, and says what `compare` made of their tensors. The environment may set
/// KFORMER_DRAWS, the number of problems, and KFORMER_SEED.
template <class T, class Judge>
void judge_draws(Judge judge) {
  const auto setting = [](const char* name, std::int64_t usual) {
    const char* text = std::getenv(name);
    return text ? std::atoll(text) : usual;
  };
  const std::int64_t draws = setting("KFORMER_DRAWS", 10);
  Draw draw(static_cast<std::uint32_t>(setting("KFORMER_SEED", 1)));
  Counting counting;
  for (std::int64_t n = 0; n < draws; ++n) BOOST_TEST_CONTEXT("draw " << n) {
      judge(draw);
    }
  const Tally& tally = counting.tally;
  namespace framework = boost::unit_test::framework;
  const auto suite = framework::current_test_case().p_parent_id;
  BOOST_TEST_MESSAGE(framework::get<boost::unit_test::test_suite>(suite).p_name.get()
                     << ' ' << to_string(dtype_of<T>) << ": " << tally.tensors << " tensors, " << tally.rejected
                     << " rejected, at most " << static_cast<double>(tally.share) << " of a limit");
}

}  // namespace kformer::Testing
