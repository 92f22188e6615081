// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "decks/engine/load.hpp"
#include "decks/sweep/sweep_cases.hpp"

/// \file
/// Contradictions between keys of a sweep, for any axes.

namespace kformer::Impl::schema {

/// The place of a value, or of the innermost table around it that the deck has.
Place place_of(const LoadedDeck& loaded, std::vector<std::string> path);

/// Whether the deck has the key.
bool has(const LoadedDeck& loaded, const std::vector<std::string>& path);

/// Contradictions in [run] and [output].
void check_run_and_output(const RunTable& run, const OutputTable& output, const LoadedDeck& loaded,
                          Diagnostics& diagnostics);

/// The same, and those in [timing].
void check_run_tables(const RunTable& run, const TimingTable& timing, const OutputTable& output,
                      const LoadedDeck& loaded, Diagnostics& diagnostics);

/// Checks that "all" and "default" are used alone.
void check_spaces(const std::vector<std::string>& spaces, const LoadedDeck& loaded, Diagnostics& diagnostics);

constexpr double most_cases = 100000;
constexpr std::size_t most_exclusion_tests = 20'000'000;  // a second's worth

/// Checks the number of cases of a sweep.
template <class SweepTable>
void check_number_of_cases(const SweepTable& sweep, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  double cases = 1;
  for_each_axis(
      [&](const Key&, const auto& values) { cases *= std::max<double>(static_cast<double>(values.size()), 1); },
      sweep.axes);
  if (sweep.mode == SweepMode::product && cases > most_cases)
    diagnostics.error(place_of(loaded, {"sweep", "mode"}),
                      fmt::format("[sweep] has {} cases, but the limit is {}", cases, most_cases));
}

/// Checks that the axes of a zipped sweep have matching lengths.
template <class SweepTable>
void check_zip(const SweepTable& sweep, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (sweep.mode != SweepMode::zip) return;
  const auto by_default = [&](const std::string& axis) {
    return has(loaded, {"sweep", axis}) ? "" : " by default";
  };
  std::string first;
  std::size_t length = 1;
  for_each_axis(
      [&](const Key& key, const auto& values) {
        if (values.size() <= 1 || values.size() == length) return;
        if (length > 1) {
          const bool given = has(loaded, {"sweep", key.name});
          diagnostics.error(
              place_of(loaded, {"sweep", given ? key.name : first}),
              fmt::format("with mode = \"zip\" every axis has one value or equally many, but '{}' has "
                          "{}{} and '{}' has {}{}",
                          first, length, by_default(first), key.name, values.size(), by_default(key.name)));
          return;
        }
        first = key.name;
        length = values.size();
      },
      sweep.axes);
}

/// Every exclusion names an axis and matches a case (else a warning), and some case is left. Only for a sound
/// sweep: they are tried on its cases. `axes` are those of the sweep with their defaults filled in. What an
/// exclusion of axes without values leaves out is known, and checked, when the deck runs.
template <class Case, class Axes>
void check_exclusions(SweepMode mode, const Axes& axes, const std::vector<Axes>& exclude,
                      const LoadedDeck& loaded, std::vector<std::string>& warnings, Diagnostics& diagnostics) {
  const Entry* entry = find_path(loaded.root, {"sweep", "exclude"});
  if (entry == nullptr) return;
  const auto& elements = std::get<Array>(entry->value.data);
  const auto cases = cases_of<Case>(mode, axes);
  if (exclude.size() > most_exclusion_tests / std::max<std::size_t>(cases.size(), 1)) {
    diagnostics.error(entry->place, fmt::format("{} exclusions of {} cases are more than {} tests; use fewer",
                                                exclude.size(), cases.size(), most_exclusion_tests));
    return;
  }
  std::vector<Axes> decided;  // those whose cases are known
  for (std::size_t i = 0; i < exclude.size(); ++i) {
    const Axes known = known_part(exclude[i], axes);
    if (known == exclude[i]) decided.push_back(known);
    const auto matched = [&](const Case& point) { return matches(known, point); };
    if (exclude[i] == Axes{})
      diagnostics.error(elements[i].place, fmt::format("'sweep.exclude[{}]' names no axis", i));
    else if (std::none_of(cases.begin(), cases.end(), matched))
      warnings.push_back(
          fmt::format("{}: warning: 'sweep.exclude[{}]' matches no case", to_string(elements[i].place), i));
  }
  if (diagnostics.empty() &&
      std::all_of(cases.begin(), cases.end(), [&](const Case& point) { return excluded(decided, point); }))
    diagnostics.error(entry->place, "every case of [sweep] is excluded");
}

}  // namespace kformer::Impl::schema
