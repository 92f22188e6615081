// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "decks/sweep/sweep.hpp"
#include "io/schema/key.hpp"

/// \file
/// The cases of a sweep, whatever its axes: `Axes` holds the values along every axis, `Case` one of each, and
/// `for_each_axis` of the kind lists them.

namespace kformer::Impl::schema {

/// Whether this is "all" or "default", which denote spaces of the build.
bool stands_for_others(const std::string& space);

/// Whether the axis is "all" or "default" alone.
bool leaves_spaces_to_build(const std::vector<std::string>& spaces);

/// Checks that the space is one of the build.
/// \param key of the deck, which asks for it
/// \throws DeckError if it is not
void require_built(const char* key, const std::string& space, const std::vector<std::string>& built_spaces);

/// Counts like a clock: the last axis first. Returns false after the last point.
bool advance(std::vector<std::size_t>& index, const std::vector<std::size_t>& lengths);

/// Whether these numbers of values are all 1 or equal.
bool fit_together(const std::vector<std::size_t>& lengths);

/// The number of values along every axis; an axis without values counts as one with a single zero.
template <class Axes>
std::vector<std::size_t> lengths_of(const Axes& axes) {
  std::vector<std::size_t> lengths;
  for_each_axis(
      [&](const Key&, const auto& values) { lengths.push_back(std::max<std::size_t>(values.size(), 1)); },
      axes);
  return lengths;
}

/// All cases of a sweep, with "all" execution spaces as one, before any is excluded.
template <class Case, class Axes>
std::vector<Case> cases_of(SweepMode mode, const Axes& axes) {
  const auto lengths = lengths_of(axes);
  std::vector<std::size_t> index(lengths.size(), 0);
  std::vector<Case> points;
  const auto add_point = [&] {
    std::size_t axis = 0;
    for_each_axis(
        [&](const Key&, auto& value, const auto& values) {
          if (!values.empty()) value = values.at(index[axis]);
          ++axis;
        },
        points.emplace_back(), axes);
  };
  if (mode == SweepMode::product) {
    do add_point();
    while (advance(index, lengths));
    return points;
  }
  for (std::size_t n = 0; n < *std::max_element(lengths.begin(), lengths.end()); ++n) {
    for (std::size_t axis = 0; axis < index.size(); ++axis) index[axis] = lengths[axis] == 1 ? 0 : n;
    add_point();
  }
  return points;
}

/// Whether a case has one of the excluded values on every axis that the exclusion names.
template <class Axes, class Case>
bool matches(const Axes& exclusion, const Case& point) {
  bool all = true;
  for_each_axis(
      [&](const Key&, const auto& excluded, const auto& value) {
        all = all && (excluded.empty() || std::find(excluded.begin(), excluded.end(), value) != excluded.end());
      },
      exclusion, point);
  return all;
}

/// Whether any of the exclusions matches.
template <class Axes, class Case>
bool excluded(const std::vector<Axes>& exclude, const Case& point) {
  return std::any_of(exclude.begin(), exclude.end(),
                     [&](const Axes& exclusion) { return matches(exclusion, point); });
}

/// The exclusion without the axes whose values are only known when the deck runs.
template <class Axes>
Axes known_part(Axes exclusion, const Axes& axes) {
  for_each_axis(
      [](const Key&, auto& excluded, const auto& values) {
        if (values.empty()) excluded.clear();
      },
      exclusion, axes);
  if (leaves_spaces_to_build(axes.execution_space)) exclusion.execution_space.clear();
  return exclusion;
}

/// The sweeps over the requested spaces: every case runs on all of them, with mode = "zip", too.
template <class Axes>
std::vector<Axes> on_built_spaces(const Axes& axes, const std::vector<std::string>& built_spaces) {
  if (!leaves_spaces_to_build(axes.execution_space)) return {axes};
  std::vector<Axes> sweeps;
  for (const auto& space : built_spaces) {
    sweeps.push_back(axes);
    sweeps.back().execution_space = {space};
    if (axes.execution_space.front() == "default") break;
  }
  return sweeps;
}

/// The cases that run, in running order.
/// \throws DeckError for an execution space that is not built, for axes of a zip with different lengths (those
/// that a tensor file fills are checked only here), or when no case is left
template <class Case, class Axes>
std::vector<Case> expand_sweep(SweepMode mode, const Axes& all_axes, const std::vector<Axes>& exclude,
                               const std::vector<std::string>& built_spaces) {
  std::vector<Case> cases;
  for (const auto& axes : on_built_spaces(all_axes, built_spaces)) {
    for (const auto& space : axes.execution_space) require_built("sweep.execution_space", space, built_spaces);
    if (mode == SweepMode::zip && !fit_together(lengths_of(axes)))
      throw DeckError("with mode = \"zip\" every axis of [sweep] has one value or equally many");
    for (auto& point : cases_of<Case>(mode, axes))
      if (!excluded(exclude, point)) cases.push_back(std::move(point));
  }
  if (cases.empty()) throw DeckError("every case of [sweep] is excluded");
  return cases;
}

}  // namespace kformer::Impl::schema
