// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/program.hpp"
#include "decks/engine/deck.hpp"

namespace kformer::drivers {

/// Describes a driver to its command line.
struct DriverInfo {
  std::string name;                            ///< of the program
  std::string summary;                         ///< one line
  std::function<std::string()> describe_deck;  ///< Markdown
  std::function<std::string()> deck_schema;    ///< JSON Schema
};

/// A parsed command line.
struct CommandLine {
  DeckSource deck;                  ///< deck and overrides; --output is the last override
  bool dry_run = false;             ///< list the cases and stop
  bool print_deck = false;          ///< print the resolved deck and stop
  std::vector<std::string> kokkos;  ///< arguments for Kokkos::initialize
  std::vector<std::string> all;     ///< the whole command line
};

/// Parses the command line, answers --help, --version, --describe-deck and --deck-schema, and calls `run`
/// with the rest, guarded. None of this starts Kokkos.
int driver_main(int argc, char** argv, const DriverInfo& info,
                const std::function<int(const CommandLine&)>& run);

}  // namespace kformer::drivers
