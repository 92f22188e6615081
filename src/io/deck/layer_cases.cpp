// SPDX-License-Identifier: MIT
#include "io/deck/layer_cases.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "io/deck/layer_schema.hpp"

namespace kformer {
namespace Impl::decks {
namespace {

bool leaves_spaces_to_build(const LayerAxes& axes) {
  return axes.execution_space.size() == 1 && stands_for_others(axes.execution_space.front());
}

// The sweeps over the spaces that are meant: with mode = "zip", too, every case runs on all of them.
std::vector<LayerAxes> on_built_spaces(const LayerAxes& axes, const std::vector<std::string>& built_spaces) {
  if (!leaves_spaces_to_build(axes)) return {axes};
  std::vector<LayerAxes> sweeps;
  for (const auto& space : built_spaces) {
    sweeps.push_back(axes);
    sweeps.back().execution_space = {space};
    if (axes.execution_space.front() == "default") break;
  }
  return sweeps;
}

// The number of values along every axis; an axis without values counts as one with a single zero.
std::vector<std::size_t> lengths_of(const LayerAxes& axes) {
  std::vector<std::size_t> lengths;
  for_each_axis(
      [&](const Key&, const auto& values) { lengths.push_back(std::max<std::size_t>(values.size(), 1)); },
      axes);
  return lengths;
}

LayerCase case_at(const LayerAxes& axes, const std::vector<std::size_t>& index) {
  LayerCase point;
  std::size_t axis = 0;
  for_each_axis(
      [&](const Key&, auto& value, const auto& values) {
        if (!values.empty()) value = values.at(index[axis]);
        ++axis;
      },
      point, axes);
  return point;
}

// Counts like a clock: the last axis first. Returns false after the last point.
bool advance(std::vector<std::size_t>& index, const std::vector<std::size_t>& lengths) {
  for (std::size_t axis = lengths.size(); axis-- > 0;) {
    if (++index[axis] < lengths[axis]) return true;
    index[axis] = 0;
  }
  return false;
}

}  // namespace

bool stands_for_others(const std::string& space) { return space == "all" || space == "default"; }

std::vector<LayerCase> cases_of(SweepMode mode, const LayerAxes& axes) {
  const auto lengths = lengths_of(axes);
  std::vector<std::size_t> index(lengths.size(), 0);
  std::vector<LayerCase> points;
  if (mode == SweepMode::product) {
    do points.push_back(case_at(axes, index));
    while (advance(index, lengths));
    return points;
  }
  for (std::size_t n = 0; n < *std::max_element(lengths.begin(), lengths.end()); ++n) {
    for (std::size_t axis = 0; axis < index.size(); ++axis) index[axis] = lengths[axis] == 1 ? 0 : n;
    points.push_back(case_at(axes, index));
  }
  return points;
}

bool matches(const LayerAxes& exclusion, const LayerCase& point) {
  bool all = true;
  for_each_axis(
      [&](const Key&, const auto& excluded, const auto& value) {
        all = all && (excluded.empty() || std::find(excluded.begin(), excluded.end(), value) != excluded.end());
      },
      exclusion, point);
  return all;
}

LayerAxes known_part(LayerAxes exclusion, const LayerAxes& axes) {
  for_each_axis(
      [](const Key&, auto& excluded, const auto& values) {
        if (values.empty()) excluded.clear();
      },
      exclusion, axes);
  if (leaves_spaces_to_build(axes)) exclusion.execution_space.clear();
  return exclusion;
}

}  // namespace Impl::decks

std::vector<LayerCase> expand(const LayerSweepTable& sweep, const std::vector<std::string>& built_spaces) {
  using namespace Impl::decks;
  std::vector<LayerCase> cases;
  for (const auto& axes : on_built_spaces(sweep.axes, built_spaces)) {
    for (const auto& space : axes.execution_space)
      if (std::find(built_spaces.begin(), built_spaces.end(), space) == built_spaces.end())
        throw DeckError(fmt::format("'sweep.execution_space' asks for \"{}\", but this build has: {}", space,
                                    fmt::join(built_spaces, ", ")));
    for (auto& point : cases_of(sweep.mode, axes)) {
      const auto excludes = [&](const LayerAxes& exclusion) { return matches(exclusion, point); };
      if (std::none_of(sweep.exclude.begin(), sweep.exclude.end(), excludes)) cases.push_back(std::move(point));
    }
  }
  if (cases.empty()) throw DeckError("every case of [sweep] is excluded");
  return cases;
}

}  // namespace kformer
