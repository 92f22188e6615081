// SPDX-License-Identifier: MIT
#include "io/deck/layer_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/deck/layer_cases.hpp"
#include "io/deck/layer_model.hpp"
#include "io/deck/layer_schema.hpp"

namespace kformer::Impl::decks {
namespace {

constexpr double most_cases = 100000;

// The place of a value, or of the innermost table around it that the deck has.
Place place_of(const LoadedDeck& loaded, std::vector<std::string> path) {
  if (const Entry* entry = find_path(loaded.root, path)) return entry->value.place;
  for (path.pop_back(); !path.empty(); path.pop_back())
    if (const Entry* entry = find_path(loaded.root, path)) return entry->place;
  return {loaded.source, 1, 1, 0};
}

bool has(const LoadedDeck& loaded, const std::vector<std::string>& path) {
  return find_path(loaded.root, path) != nullptr;
}

void check_model(LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (!deck.tensors)
    for (const char* key : {"hidden_size", "num_attention_heads", "intermediate_size"})
      if (!has(loaded, {"model", key}))
        diagnostics.error(place_of(loaded, {"model", key}),
                          fmt::format("missing key '{}' in [model]; give it, or 'config', or [tensors]", key));
  const auto faults = deck.tensors ? model_faults(deck.model) : complete_model(deck.model);
  for (const auto& fault : faults)
    diagnostics.error(place_of(loaded, {"model", fault.key}),
                      fmt::format("'model.{}' {}", fault.key, fault.message));
}

void check_axes(const LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (!deck.tensors && !has(loaded, {"sweep", "seq_len"}))
    diagnostics.error(place_of(loaded, {"sweep", "seq_len"}),
                      "missing key 'seq_len' in [sweep]; give it, or [tensors]");
  const auto& spaces = deck.sweep.axes.execution_space;
  if (spaces.size() > 1 && std::any_of(spaces.begin(), spaces.end(), stands_for_others))
    diagnostics.error(
        place_of(loaded, {"sweep", "execution_space"}),
        "'sweep.execution_space' has \"all\" or \"default\" beside other values; each stands alone");
}

void check_number_of_cases(const LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  double cases = 1;
  for_each_axis(
      [&](const Key&, const auto& values) { cases *= std::max<double>(static_cast<double>(values.size()), 1); },
      deck.sweep.axes);
  if (deck.sweep.mode == SweepMode::product && cases > most_cases)
    diagnostics.error(place_of(loaded, {"sweep", "mode"}),
                      fmt::format("[sweep] has {} cases, at most {} are run", cases, most_cases));
}

void check_zip(const LayerSweepTable& sweep, const LoadedDeck& loaded, Diagnostics& diagnostics) {
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

// Only for a sound sweep: the exclusions are tried on its cases.
void check_exclusions(LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  const Entry* entry = find_path(loaded.root, {"sweep", "exclude"});
  if (entry == nullptr) return;
  const auto& elements = std::get<Array>(entry->value.data);
  const auto& exclude = deck.sweep.exclude;
  const auto cases = cases_of(deck.sweep.mode, deck.sweep.axes);
  for (std::size_t i = 0; i < exclude.size(); ++i) {
    const LayerAxes known = known_part(exclude[i], deck.sweep.axes);
    const auto matched = [&](const LayerCase& point) { return matches(known, point); };
    if (exclude[i] == LayerAxes{})
      diagnostics.error(elements[i].place, fmt::format("'sweep.exclude[{}]' names no axis", i));
    else if (std::none_of(cases.begin(), cases.end(), matched))
      deck.record.warnings.push_back(
          fmt::format("{}: warning: 'sweep.exclude[{}]' matches no case", to_string(elements[i].place), i));
  }
  const auto excluded = [&](const LayerCase& point) {
    return std::any_of(exclude.begin(), exclude.end(),
                       [&](const auto& exclusion) { return matches(exclusion, point); });
  };
  if (diagnostics.empty() && std::all_of(cases.begin(), cases.end(), excluded))
    diagnostics.error(entry->place, "every case of [sweep] is excluded");
}

void check_other_tables(const LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (deck.run.name.find('/') != std::string::npos)
    diagnostics.error(place_of(loaded, {"run", "name"}),
                      "'run.name' must not contain '/'; directories belong into 'output.file'");
  if (deck.timing.max_time_s > 0 && deck.timing.max_time_s < deck.timing.min_time_s)
    diagnostics.error(place_of(loaded, {"timing", "max_time_s"}),
                      fmt::format("'timing.max_time_s' = {} is less than 'timing.min_time_s' = {}",
                                  deck.timing.max_time_s, deck.timing.min_time_s));
  if (deck.output.file.empty())
    diagnostics.error(place_of(loaded, {"output", "file"}), "'output.file' must not be empty");
  try {
    output_file_name(deck.output.file, {});
  } catch (const DeckError& error) {
    diagnostics.error(place_of(loaded, {"output", "file"}), error.what());
  }
}

}  // namespace

void check_layer_deck(LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_model(deck, loaded, diagnostics);
  check_axes(deck, loaded, diagnostics);
  check_number_of_cases(deck, loaded, diagnostics);
  check_zip(deck.sweep, loaded, diagnostics);
  check_other_tables(deck, loaded, diagnostics);
  if (diagnostics.empty()) check_exclusions(deck, loaded, diagnostics);
}

}  // namespace kformer::Impl::decks
