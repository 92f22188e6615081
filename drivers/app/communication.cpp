// SPDX-License-Identifier: MIT
#include "app/communication.hpp"

namespace kformer::drivers {

std::vector<const Communicator*> communicators_of(const RankGrid& grid) {
  std::vector<const Communicator*> all{grid.world().get(), grid.replicas().get()};
  for (const GridAxis axis : {GridAxis::data, GridAxis::context, GridAxis::tensor, GridAxis::pipeline})
    if (grid.along(axis) != grid.replicas()) all.push_back(grid.along(axis).get());
  return all;
}

std::vector<CommunicationCount> communication_of(const RankGrid& grid) {
  std::vector<CommunicationCount> counts;
  for (const Communicator* ranks : communicators_of(grid))
    for (CommunicationCount& count : ranks->log().counts()) counts.push_back(std::move(count));
  return counts;
}

}  // namespace kformer::drivers
