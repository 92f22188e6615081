// SPDX-License-Identifier: MIT
#include "kformer/data/best_fit.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "kformer/core/error.hpp"

namespace kformer {
namespace {

using Indices = std::vector<std::int64_t>;

Indices longest_first(std::span<const std::int64_t> lengths) {
  Indices order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](std::int64_t item) { return lengths[static_cast<std::size_t>(item)]; };
  std::ranges::stable_sort(order, std::greater(), length);
  return order;
}

/// The bin of every item, numbered as they were opened; and their number.
Indices choose_bins(std::span<const std::int64_t> lengths, std::int64_t capacity, std::int64_t& bins) {
  Indices bin_of(lengths.size());
  std::map<std::int64_t, Indices> with_room;  // bins by the room that is left in them
  bins = 0;
  for (const std::int64_t item : longest_first(lengths)) {
    const std::int64_t length = lengths[static_cast<std::size_t>(item)];
    std::int64_t bin = bins, room = capacity;
    if (const auto fullest = with_room.lower_bound(length); fullest != with_room.end()) {
      room = fullest->first;
      bin = fullest->second.back();
      fullest->second.pop_back();
      if (fullest->second.empty()) with_room.erase(fullest);
    } else {
      ++bins;
    }
    bin_of[static_cast<std::size_t>(item)] = bin;
    if (room > length) with_room[room - length].push_back(bin);
  }
  return bin_of;
}

/// Numbers the bins in the order of their first items.
void renumber(Indices& bin_of, std::int64_t bins) {
  Indices number(static_cast<std::size_t>(bins), -1);
  std::int64_t next = 0;
  for (std::int64_t& bin : bin_of) {
    std::int64_t& renumbered = number[static_cast<std::size_t>(bin)];
    if (renumbered < 0) renumbered = next++;
    bin = renumbered;
  }
}

void check_lengths(const char* function, std::span<const std::int64_t> lengths, std::int64_t capacity) {
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] < 1 || lengths[i] > capacity)
      throw Error("kformer::" + std::string(function) + ": item " + std::to_string(i) + " has length " +
                  std::to_string(lengths[i]) + "; expected 1 to the capacity, " + std::to_string(capacity));
}

}  // namespace

Bins best_fit_decreasing(std::span<const std::int64_t> lengths, std::int64_t capacity) {
  check_lengths("best_fit_decreasing", lengths, capacity);
  std::int64_t count = 0;
  Indices bin_of = choose_bins(lengths, capacity, count);
  renumber(bin_of, count);
  Bins bins;
  bins.first.assign(static_cast<std::size_t>(count) + 1, 0);
  for (const std::int64_t bin : bin_of) ++bins.first[static_cast<std::size_t>(bin) + 1];
  std::partial_sum(bins.first.begin(), bins.first.end(), bins.first.begin());
  bins.items.resize(lengths.size());
  Indices next(bins.first.begin(), bins.first.end() - 1);
  for (std::size_t i = 0; i < bin_of.size(); ++i)
    bins.items[static_cast<std::size_t>(next[static_cast<std::size_t>(bin_of[i])]++)] =
        static_cast<std::int64_t>(i);
  return bins;
}

std::int64_t least_bins(std::span<const std::int64_t> lengths, std::int64_t capacity) {
  check_lengths("least_bins", lengths, capacity);
  Indices items(static_cast<std::size_t>(capacity) + 1);  // of each length
  std::int64_t above_half = 0, room = 0, small = 0;       // items; room beside them; tokens of the others
  for (const std::int64_t length : lengths) {
    ++items[static_cast<std::size_t>(length)];
    if (2 * length > capacity) {
      ++above_half;
      room += capacity - length;
    } else {
      small += length;
    }
  }
  // Items shorter than `least` may disappear in the room that items longer than capacity − least leave.
  std::int64_t most = above_half;
  for (std::int64_t least = 1; 2 * least <= capacity; ++least) {
    const std::int64_t beyond = small - room;
    if (beyond > 0) most = std::max(most, above_half + (beyond + capacity - 1) / capacity);
    const std::int64_t longest = capacity - least;
    if (2 * longest > capacity) room -= items[static_cast<std::size_t>(longest)] * least;
    small -= items[static_cast<std::size_t>(least)] * least;
  }
  return most;
}

}  // namespace kformer
