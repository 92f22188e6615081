// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kformer/io/deck.hpp"

namespace kformer::drivers {

/// What every driver returns to the shell.
enum ExitCode {
  exit_ok = 0,
  exit_failure = 1,        ///< something went wrong while running
  exit_usage = 2,          ///< the command line is wrong
  exit_deck = 3,           ///< the deck is invalid
  exit_io = 4,             ///< a file could not be read or written
  exit_check = 5,          ///< a result is out of tolerance
  exit_out_of_memory = 6,  ///< memory ran out and the deck says abort
  exit_stopped = 75        ///< stopped by a signal or the time limit, results so far are on disk
};

/// What a driver is, for its command line.
struct DriverInfo {
  std::string name;                            ///< of the program
  std::string summary;                         ///< one line
  std::function<std::string()> describe_deck;  ///< Markdown
  std::function<std::string()> deck_schema;    ///< JSON Schema
};

/// A command line, taken apart.
struct CommandLine {
  DeckSource deck;                  ///< deck and overrides; --output is the last override
  bool dry_run = false;             ///< list the cases and stop
  bool print_deck = false;          ///< print the resolved deck and stop
  std::vector<std::string> kokkos;  ///< arguments for Kokkos::initialize
  std::vector<std::string> all;     ///< the whole command line
};

/// Takes the command line apart, answers --help, --version, --describe-deck and --deck-schema, and calls `run`
/// with the rest; turns what it throws into a message and an exit code. None of this starts Kokkos.
int driver_main(int argc, char** argv, const DriverInfo& info,
                const std::function<int(const CommandLine&)>& run);

}  // namespace kformer::drivers
