// SPDX-License-Identifier: MIT
#include "decks/sweep/sweep_checks.hpp"

namespace kformer::Impl::schema {

Place place_of(const LoadedDeck& loaded, std::vector<std::string> path) {
  if (const Entry* entry = find_path(loaded.root, path)) return entry->value.place;
  for (path.pop_back(); !path.empty(); path.pop_back())
    if (const Entry* entry = find_path(loaded.root, path)) return entry->place;
  return {loaded.source, 1, 1, 0};
}

bool has(const LoadedDeck& loaded, const std::vector<std::string>& path) {
  return find_path(loaded.root, path) != nullptr;
}

void check_run_and_output(const RunTable& run, const OutputTable& output, const LoadedDeck& loaded,
                          Diagnostics& diagnostics) {
  if (run.name.find('/') != std::string::npos)
    diagnostics.error(place_of(loaded, {"run", "name"}),
                      "'run.name' must not contain '/'; directories belong in 'output.file'");
  for (const auto& [key, text] : {std::pair{"run.name", &run.name}, std::pair{"output.file", &output.file}})
    if (text->find('\0') != std::string::npos) {
      const std::string name = key;
      const std::size_t dot = name.find('.');
      diagnostics.error(place_of(loaded, {name.substr(0, dot), name.substr(dot + 1)}),
                        fmt::format("'{}' must not contain a zero byte", name));
    }
  if (output.file.empty())
    diagnostics.error(place_of(loaded, {"output", "file"}), "'output.file' must not be empty");
  try {
    output_file_name(output.file, {});
  } catch (const DeckError& error) {
    diagnostics.error(place_of(loaded, {"output", "file"}), error.what());
  }
}

void check_run_tables(const RunTable& run, const TimingTable& timing, const OutputTable& output,
                      const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_run_and_output(run, output, loaded, diagnostics);
  if (timing.max_time_s > 0 && timing.max_time_s < timing.min_time_s)
    diagnostics.error(place_of(loaded, {"timing", "max_time_s"}),
                      fmt::format("'timing.max_time_s' = {} is less than 'timing.min_time_s' = {}",
                                  timing.max_time_s, timing.min_time_s));
}

void check_spaces(const std::vector<std::string>& spaces, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (spaces.size() > 1 && std::any_of(spaces.begin(), spaces.end(), stands_for_others))
    diagnostics.error(
        place_of(loaded, {"sweep", "execution_space"}),
        "'sweep.execution_space' combines \"all\" or \"default\" with other values; use it alone");
}

}  // namespace kformer::Impl::schema
