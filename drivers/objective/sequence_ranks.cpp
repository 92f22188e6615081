// SPDX-License-Identifier: MIT
#include "objective/sequence_ranks.hpp"

#include <algorithm>

namespace kformer::drivers {

std::vector<double> SequenceRanks::gather(std::span<const double> own) const {
  return m_gather ? m_gather(own) : std::vector<double>(own.begin(), own.end());
}

std::vector<double> SequenceRanks::sum(std::span<const double> own) const {
  const std::vector<double> all = gather(own);
  std::vector<double> sums(own.size());
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % own.size()] += all[i];
  return sums;
}

std::vector<double> SequenceRanks::of_step(const SequenceBatch& batch, std::span<const double> own) const {
  const auto count = static_cast<double>(own.size());
  const auto most = static_cast<std::size_t>(std::ranges::max(gather(std::span(&count, 1))));
  // What fills up a rank with fewer has no place.
  std::vector<double> places(batch.places.begin(), batch.places.end()), values(own.begin(), own.end());
  places.resize(most, -1);
  values.resize(most);
  places = gather(places);
  values = gather(values);
  std::vector<double> all(static_cast<std::size_t>(batch.in_step));
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i] >= 0) all[static_cast<std::size_t>(places[i])] = values[i];
  return all;
}

}  // namespace kformer::drivers
