// SPDX-License-Identifier: MIT
#include "kformer/parallel/rank_grid.hpp"

#include <cstdint>
#include <vector>

namespace kformer {

namespace {

constexpr std::array axes = {GridAxis::data, GridAxis::context, GridAxis::tensor, GridAxis::pipeline};
// Slowest first.
constexpr std::array order = {GridAxis::pipeline, GridAxis::data, GridAxis::context, GridAxis::tensor};

std::string text_of(const GridIndex& index) {
  std::string text;
  for (const GridAxis axis : axes)
    text += (text.empty() ? "" : ", ") + std::string(name_of(axis)) + " " + std::to_string(index.along(axis));
  return text;
}

}  // namespace

int GridIndex::along(GridAxis axis) const { return const_cast<GridIndex*>(this)->along(axis); }

int& GridIndex::along(GridAxis axis) {
  switch (axis) {
    case GridAxis::data:
      return data;
    case GridAxis::context:
      return context;
    case GridAxis::tensor:
      return tensor;
    case GridAxis::pipeline:
      break;
  }
  return pipeline;
}

RankGrid::RankGrid(std::shared_ptr<Communicator> world, const GridIndex& shape)
    : m_world(std::move(world)), m_shape(shape) {
  std::int64_t ranks = 1;
  for (const GridAxis axis : axes) {
    if (shape.along(axis) < 1)
      throw NotSupported("kformer::RankGrid: every axis needs at least one rank, got " + text_of(shape));
    if (__builtin_mul_overflow(ranks, shape.along(axis), &ranks))
      throw NotSupported("kformer::RankGrid: there cannot be so many ranks: " + text_of(shape));
  }
  if (ranks != m_world->size())
    throw NotSupported("kformer::RankGrid: " + text_of(shape) + " are " + std::to_string(ranks) +
                       " ranks, but '" + m_world->name() + "' has " + std::to_string(m_world->size()) +
                       "; their product must be the number of ranks");
  m_place = place_of(m_world->rank());
  for (const GridAxis axis : axes) {
    std::vector<int> members;
    GridIndex place = m_place;
    for (place.along(axis) = 0; place.along(axis) < shape.along(axis); ++place.along(axis))
      members.push_back(rank_at(place));
    m_lines[static_cast<std::size_t>(axis)] = m_world->subset(members, std::string(name_of(axis)));
  }
  std::vector<int> members;
  GridIndex place = m_place;
  for (place.data = 0; place.data < shape.data; ++place.data)
    for (place.context = 0; place.context < shape.context; ++place.context) members.push_back(rank_at(place));
  m_replicas = shape.context == 1 ? along(GridAxis::data) : m_world->subset(members, "data x context");
  m_pipeline = std::make_shared<PipelineLinks>(along(GridAxis::pipeline));
}

GridIndex RankGrid::place_of(int rank) const {
  if (rank < 0 || rank >= m_world->size())
    throw NotSupported("kformer::RankGrid::place_of: there is no rank " + std::to_string(rank) +
                       ", only 0 to " + std::to_string(m_world->size() - 1));
  GridIndex place;
  for (std::size_t i = order.size(); i-- > 0;) {
    place.along(order[i]) = rank % m_shape.along(order[i]);
    rank /= m_shape.along(order[i]);
  }
  return place;
}

int RankGrid::rank_at(const GridIndex& place) const {
  int rank = 0;
  for (const GridAxis axis : order) {
    if (place.along(axis) < 0 || place.along(axis) >= m_shape.along(axis))
      throw NotSupported("kformer::RankGrid::rank_at: there is no place " + text_of(place) + " in a grid of " +
                         text_of(m_shape));
    rank = rank * m_shape.along(axis) + place.along(axis);
  }
  return rank;
}

}  // namespace kformer
