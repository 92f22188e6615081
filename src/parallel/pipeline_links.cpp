// SPDX-License-Identifier: MIT
#include "kformer/parallel/pipeline_links.hpp"

#include <array>
#include <string>
#include <utility>

namespace kformer {

PipelineLinks::PipelineLinks(std::shared_ptr<Communicator> ranks) : m_ranks(std::move(ranks)) {
  const int size = m_ranks->size(), rank = m_ranks->rank();
  // Every rank must make as many calls, with itself where it has no part.
  const auto pair = [&](int from, int to, const char* name) -> std::shared_ptr<Communicator> {
    const std::array both{from, to}, self{rank, rank};
    const bool member = from != to && (rank == from || rank == to);
    return m_ranks->subset(std::span(member ? both : self).first(member ? 2 : 1), name);
  };
  m_ends = pair(0, size - 1, "ends");
  for (int from = 0; from < size; ++from) {
    const int next = (from + 1) % size;
    const auto down = pair(from, next, "pipeline"), up = pair(next, from, "pipeline");
    if (rank == from) {
      m_states_out = down;
      m_gradients_in = up;
    }
    if (rank == next) {
      m_states_in = down;
      m_gradients_out = up;
    }
  }
}

}  // namespace kformer
