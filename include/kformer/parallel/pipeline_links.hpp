// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "kformer/parallel/communicator.hpp"

/// \file
/// The ways between neighbours of a pipeline.

namespace kformer {

/// Communicators of a pipeline. Messages in one direction between two ranks have one of their own, of which the sender is
/// rank 0 and the receiver rank 1. The ranks are a ring: with several parts of a model on each, the last sends to the first.
class PipelineLinks {
 public:
  /// Every rank makes the call. Nobody waits.
  /// \param ranks of the pipeline
  explicit PipelineLinks(std::shared_ptr<Communicator> ranks);

  /// All ranks of the pipeline; the messages on the others are booked in its log, too.
  const std::shared_ptr<Communicator>& ranks() const { return m_ranks; }
  /// The first and the last rank; on others this rank alone.
  const std::shared_ptr<Communicator>& ends() const { return m_ends; }
  /// To the next rank.
  const std::shared_ptr<Communicator>& states_out() const { return m_states_out; }
  /// From the rank before.
  const std::shared_ptr<Communicator>& states_in() const { return m_states_in; }
  /// To the rank before.
  const std::shared_ptr<Communicator>& gradients_out() const { return m_gradients_out; }
  /// From the next rank.
  const std::shared_ptr<Communicator>& gradients_in() const { return m_gradients_in; }

 private:
  std::shared_ptr<Communicator> m_ranks, m_ends, m_states_out, m_states_in, m_gradients_out, m_gradients_in;
};

}  // namespace kformer
