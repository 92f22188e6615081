// SPDX-License-Identifier: MIT
#include "kformer/data/best_fit.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "kformer/core/error.hpp"

namespace kformer::Testing {
namespace {

using Lengths = std::vector<std::int64_t>;

/// Every item once, no bin too full, items and bins in order.
void check_invariants(const Lengths& lengths, std::int64_t capacity, const Bins& bins) {
  Lengths seen = bins.items, all(lengths.size());
  std::iota(all.begin(), all.end(), 0);
  std::ranges::sort(seen);
  BOOST_TEST((seen == all));
  BOOST_REQUIRE(bins.first.front() == 0);
  BOOST_REQUIRE(bins.first.back() == std::ssize(bins.items));
  std::int64_t first_item = -1;
  for (std::size_t b = 0; b + 1 < bins.first.size(); ++b) {
    const auto begin = bins.items.begin() + bins.first[b], end = bins.items.begin() + bins.first[b + 1];
    BOOST_REQUIRE(begin < end);
    BOOST_REQUIRE(*begin > first_item);
    first_item = *begin;
    BOOST_REQUIRE(std::is_sorted(begin, end));
    std::int64_t sum = 0;
    for (auto item = begin; item != end; ++item) sum += lengths[static_cast<std::size_t>(*item)];
    BOOST_REQUIRE(sum <= capacity);
  }
}

/// The textbook algorithm, in quadratic time.
std::int64_t textbook_bins(Lengths lengths, std::int64_t capacity) {
  std::ranges::sort(lengths, std::greater());
  Lengths rooms;
  for (const std::int64_t length : lengths) {
    auto best = rooms.end();
    for (auto room = rooms.begin(); room != rooms.end(); ++room)
      if (*room >= length && (best == rooms.end() || *room < *best)) best = room;
    if (best == rooms.end())
      rooms.push_back(capacity - length);
    else
      *best -= length;
  }
  return std::ssize(rooms);
}

double fill(const Lengths& lengths, std::int64_t capacity, const Bins& bins) {
  const auto sum = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return static_cast<double>(sum) / static_cast<double>(capacity * bins.size());
}

/// The fewest bins, by trying all.
std::int64_t fewest_bins(std::span<const std::int64_t> lengths, std::int64_t capacity, Lengths rooms = {}) {
  if (lengths.empty()) return std::ssize(rooms);
  std::int64_t fewest = std::ssize(rooms) + std::ssize(lengths);
  for (std::size_t bin = 0; bin <= rooms.size(); ++bin) {
    Lengths rest = rooms;
    if (bin == rooms.size()) rest.push_back(capacity);
    if (rest[bin] < lengths.front()) continue;
    rest[bin] -= lengths.front();
    fewest = std::min(fewest, fewest_bins(lengths.subspan(1), capacity, rest));
  }
  return fewest;
}

std::string error_of(const Lengths& lengths, std::int64_t capacity) {
  try {
    best_fit_decreasing(lengths, capacity);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(best_fit)

BOOST_AUTO_TEST_CASE(by_hand) {
  // 7, then 5 + 5, then 3 beside 7; 2 and 1 find no bin with room.
  const Bins bins = best_fit_decreasing(Lengths{5, 2, 7, 5, 3, 1}, 10);
  BOOST_TEST(bins.items == (Lengths{0, 3, 1, 5, 2, 4}));
  BOOST_TEST(bins.first == (Lengths{0, 2, 4, 6}));
  BOOST_TEST(best_fit_decreasing(Lengths{}, 10).size() == 0);
  BOOST_TEST(best_fit_decreasing(Lengths{1, 1, 1}, 1).size() == 3);
}

BOOST_AUTO_TEST_CASE(random_lengths) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t capacity = 1 + random() % 60;
    Lengths lengths(random() % 200);
    for (auto& length : lengths) length = 1 + static_cast<std::int64_t>(random() % capacity);
    const Bins bins = best_fit_decreasing(lengths, capacity);
    check_invariants(lengths, capacity, bins);
    BOOST_TEST(bins.size() == textbook_bins(lengths, capacity));
  }
}

BOOST_AUTO_TEST_CASE(lengths_like_those_of_conversations_fill_bins) {
  // Tokens of conversations are about log-normal: a median of 400, every tenth above 1600.
  std::mt19937 random(11);
  std::lognormal_distribution<double> tokens(std::log(400.0), 1.1);
  for (const std::int64_t capacity : {1024, 2048, 4096}) {
    Lengths lengths(20000);
    for (auto& length : lengths) length = std::clamp<std::int64_t>(std::llround(tokens(random)), 4, capacity);
    const Bins bins = best_fit_decreasing(lengths, capacity);
    check_invariants(lengths, capacity, bins);
    BOOST_TEST(fill(lengths, capacity, bins) >= 0.99);
  }
}

// 510 + 260 + 230 and 270 + 270 + 230 + 230 fill bins, but the longest go together first.
BOOST_AUTO_TEST_CASE(some_lengths_need_eleven_ninths_of_the_fewest_bins) {
  for (const std::int64_t times : {1, 10, 100}) {
    Lengths lengths;
    for (const auto& [length, count] : {std::pair(510, 6), {270, 6}, {260, 6}, {230, 12}})
      lengths.insert(lengths.end(), static_cast<std::size_t>(count * times), length);
    BOOST_TEST(best_fit_decreasing(lengths, 1000).size() == 11 * times);
    BOOST_TEST(least_bins(lengths, 1000) == 9 * times);
  }
}

BOOST_AUTO_TEST_CASE(no_packing_needs_fewer_bins) {
  BOOST_TEST(least_bins(Lengths{}, 10) == 0);
  BOOST_TEST(least_bins(Lengths{6, 6, 6}, 10) == 3);              // no two share a bin
  BOOST_TEST(least_bins(Lengths{6, 6, 6, 4, 4, 4, 1}, 10) == 4);  // 13 have no room of 12
  BOOST_TEST(least_bins(Lengths{7, 7, 5, 5, 5}, 10) == 4);        // 5 does not fit beside 7
  std::mt19937 random(3);
  int equal = 0;
  for (int round = 0; round < 300; ++round) {
    const std::int64_t capacity = 1 + random() % 20;
    Lengths lengths(random() % 7);
    for (auto& length : lengths) length = 1 + static_cast<std::int64_t>(random() % capacity);
    const std::int64_t least = least_bins(lengths, capacity), fewest = fewest_bins(lengths, capacity);
    BOOST_TEST(least <= fewest);
    BOOST_TEST(capacity * least >= std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
    equal += least == fewest;
  }
  BOOST_TEST(equal > 280);
}

BOOST_AUTO_TEST_CASE(lengths_that_do_not_fit) {
  BOOST_TEST(error_of({3, 11}, 10) ==
             "kformer::best_fit_decreasing: item 1 has length 11; expected 1 to the capacity, 10");
  BOOST_TEST(error_of({0}, 10) ==
             "kformer::best_fit_decreasing: item 0 has length 0; expected 1 to the capacity, 10");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
