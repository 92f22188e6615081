// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <memory>
#include <string>

#include "kformer/core/enum_names.hpp"
#include "kformer/parallel/communicator.hpp"
#include "kformer/parallel/pipeline_links.hpp"

/// \file
/// Ranks as a grid, one axis for each way to divide a training.

namespace kformer {

/// What the ranks along an axis divide among them.
enum class GridAxis {
  data,     ///< sequences
  context,  ///< the tokens of a sequence
  tensor,   ///< heads, and columns or rows of weights
  pipeline  ///< layers
};

/// The names of the axes.
template <>
inline constexpr std::array<std::string_view, 4> names_of<GridAxis> = {"data", "context", "tensor", "pipeline"};

/// The number of ranks along each axis, or the place of a rank.
struct GridIndex {
  int data = 1;      ///< see GridAxis
  int context = 1;   ///< see GridAxis
  int tensor = 1;    ///< see GridAxis
  int pipeline = 1;  ///< see GridAxis

  /// The number along an axis.
  int along(GridAxis axis) const;
  /// The same, to write.
  int& along(GridAxis axis);
  /// Whether all are equal.
  bool operator==(const GridIndex&) const = default;
};

/// A grid data × context × tensor × pipeline of ranks. Neighbours along `tensor`, which talk most, have neighbouring
/// ranks; then come `context`, `data` and `pipeline`:
///
///     rank = ((pipeline · D + data) · C + context) · T + tensor
class RankGrid {
 public:
  /// Every rank of `world` makes the call. Nobody waits.
  /// \param world all ranks
  /// \param shape ranks along each axis
  /// \throws NotSupported if a number is less than 1, or their product is not the number of ranks
  RankGrid(std::shared_ptr<Communicator> world, const GridIndex& shape);

  /// Ranks along each axis.
  const GridIndex& shape() const { return m_shape; }
  /// The place of this rank, from 0 along each axis.
  const GridIndex& place() const { return m_place; }
  /// The place of a rank.
  /// \throws NotSupported if there is no such rank
  GridIndex place_of(int rank) const;
  /// The rank at a place.
  /// \throws NotSupported if there is no such place
  int rank_at(const GridIndex& place) const;

  /// All ranks.
  const std::shared_ptr<Communicator>& world() const { return m_world; }
  /// The ranks that differ from this one in their place along `axis` alone, in that order.
  const std::shared_ptr<Communicator>& along(GridAxis axis) const {
    return m_lines[static_cast<std::size_t>(axis)];
  }
  /// The ranks that have the same weights as this one, which gradients are summed over: those that differ in their places
  /// along `data` and `context` alone, in the order of ranks.
  const std::shared_ptr<Communicator>& replicas() const { return m_replicas; }
  /// The ranks along `pipeline`, with the ways between them.
  const std::shared_ptr<PipelineLinks>& pipeline() const { return m_pipeline; }

 private:
  std::shared_ptr<Communicator> m_world, m_replicas;
  GridIndex m_shape, m_place;
  std::array<std::shared_ptr<Communicator>, 4> m_lines;
  std::shared_ptr<PipelineLinks> m_pipeline;
};

}  // namespace kformer
