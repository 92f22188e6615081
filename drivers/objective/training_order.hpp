// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "decks/train/train_deck.hpp"
#include "kformer/train/sequence_order.hpp"
#include "objective/sequence_source.hpp"

namespace kformer::drivers {

/// Which sequence a training reads at each position: a step reads `batch.sequences` of them. Those that belong together follow
/// each other.
class TrainingOrder {
 public:
  /// \param train the training data
  TrainingOrder(const TrainDeck& deck, const SequenceSource& train)
      : m_together(train.together()),
        m_order(train.size() / m_together, deck.data.shuffle, static_cast<std::uint64_t>(deck.run.seed)) {}

  /// The index of a sequence of the data.
  /// \param position from 0, over all epochs
  std::int64_t at(std::int64_t position) const {
    return m_order.at(position / m_together) * m_together + position % m_together;
  }

 private:
  std::int64_t m_together;
  SequenceOrder m_order;
};

}  // namespace kformer::drivers
