// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "kformer/train/token_sequence.hpp"

/// \file
/// Sequences of a step, which ranks share.

namespace kformer::drivers {

/// Some sequences of a set.
struct SequenceBatch {
  std::span<const TokenSequence> sequences;
  std::span<const std::int64_t> indices;  ///< of each in its set
  std::span<const std::int64_t> places;   ///< of each in the step, ascending
  std::int64_t in_step = 0;               ///< sequences of the step, over all ranks
};

/// The ranks that share the sequences of a step. All make the same calls.
class SequenceRanks {
 public:
  /// The numbers of all ranks in their order; all pass as many.
  using Gather = std::function<std::vector<double>(std::span<const double> own)>;

  /// One rank that has all sequences.
  SequenceRanks() = default;
  /// This one of several.
  SequenceRanks(std::int64_t rank, std::int64_t count, Gather gather)
      : m_rank(rank), m_count(count), m_gather(std::move(gather)) {}

  /// This rank, from 0.
  std::int64_t rank() const { return m_rank; }
  /// How many there are.
  std::int64_t count() const { return m_count; }
  /// The numbers of all ranks in their order; all pass as many.
  std::vector<double> gather(std::span<const double> own) const;
  /// Of each number the sum over the ranks.
  std::vector<double> sum(std::span<const double> own) const;
  /// A number for each sequence of the step, by its place.
  /// \param batch the sequences of this rank
  /// \param own   (sequences of this rank) their numbers
  std::vector<double> of_step(const SequenceBatch& batch, std::span<const double> own) const;

 private:
  std::int64_t m_rank = 0, m_count = 1;
  Gather m_gather;
};

}  // namespace kformer::drivers
