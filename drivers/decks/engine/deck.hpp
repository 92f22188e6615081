// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/enum_names.hpp"
#include "kformer/core/error.hpp"

/// \file
/// Input decks: shared by every kind of deck. A deck is a TOML file; `docs/decks.md` is its reference.
///
/// Each table of a deck is one struct here or in the header of its kind. Unknown keys, wrong types, values out
/// of range and contradictions are all reported together, each with its place, in one `DeckError`.

namespace kformer {

/// Where a deck comes from.
struct DeckSource {
  std::filesystem::path path;          ///< the deck file; its name alone where `text` is the deck
  std::vector<std::string> overrides;  ///< "table.key=value", later ones win; named `--set[1]`, ... in errors
  std::vector<std::string>
      model_overrides{};  ///< the same, of --model, before them; the [model] of the deck gives way
  std::string text{};     ///< the deck itself, where it is in no file
};

/// The record of reading a deck, kept with the results.
struct DeckRecord {
  std::string text;      ///< the deck file, byte for byte
  std::string resolved;  ///< every key with its value as canonical TOML; reads back to the same deck
  std::vector<std::string> warnings;  ///< one line (with place) per legal but probably unintended setting
};

/// What a run does when a case runs out of memory.
enum class OnOutOfMemory { record, abort };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<OnOutOfMemory> = {"record", "abort"};

/// What the profile keeps of the memory.
enum class MemoryProfile { off, peak };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<MemoryProfile> = {"off", "peak"};

/// The table [run].
struct RunTable {
  std::string name;          ///< of the run; the deck's file name without suffix if not given
  std::int64_t seed = 1;     ///< of every random number of the run
  std::int64_t threads = 0;  ///< host threads, 0 = Kokkos default
  OnOutOfMemory on_oom = OnOutOfMemory::record;      ///< continue with the next case, or stop
  double walltime_s = 0;                             ///< stop cleanly after that many seconds, 0 = never
  bool operator==(const RunTable&) const = default;  ///< all keys equal
};

/// The table [timing].
struct TimingTable {
  std::int64_t warmup = 1;    ///< untimed calls before the first sample
  std::int64_t repeats = 10;  ///< samples of a case
  double min_time_s = 0.01;   ///< a sample repeats calls for this long
  double max_time_s = 0;  ///< stop sampling a case after this time, but not before its first sample; 0 = never
  bool operator==(const TimingTable&) const = default;  ///< all keys equal
};

/// The table [profile].
struct ProfileTable {
  bool kernels = false;                        ///< a second, fenced pass that times every kernel and region
  MemoryProfile memory = MemoryProfile::peak;  ///< peak bytes of every case, by class
  bool machine_limits = true;                  ///< measure what the machine can do before the first case
  bool operator==(const ProfileTable&) const = default;  ///< all keys equal
};

/// The table [output].
struct OutputTable {
  std::string file = "{name}.h5";  ///< result file, relative to the working directory; see `output_file_name`
  bool overwrite = false;          ///< replace an existing file
  std::int64_t compression = 4;    ///< deflate level, 0 = none
  bool operator==(const OutputTable&) const = default;  ///< all keys equal
};

/// The values of the placeholders {name}, {kind}, {date} and {jobid} of `[output] file`.
struct OutputPlaceholders {
  std::string name;   ///< `[run] name`
  std::string kind;   ///< kind of the deck
  std::string date;   ///< day and time of the run, in a form fit for file names
  std::string jobid;  ///< number given by the batch system
};

/// `pattern` with its placeholders replaced.
/// \throws DeckError for an unknown placeholder or an unmatched brace
std::string output_file_name(std::string_view pattern, const OutputPlaceholders& values);

/// The reference of a kind of deck as Markdown: every table and key with type, range, default, unit and
/// meaning. Specialised for each kind in its own header.
template <class Deck>
std::string describe_deck_markdown();

/// The same as a JSON Schema (draft 2020-12), for editors that check decks while they are written.
template <class Deck>
std::string describe_deck_json_schema();

}  // namespace kformer
