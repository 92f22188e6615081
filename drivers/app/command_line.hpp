// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "app/program.hpp"
#include "app/report.hpp"
#include "decks/engine/deck.hpp"
#include "kformer/io/result_file.hpp"

namespace kformer::drivers {

/// What a call without a deck says.
struct ModelCall {
  std::string model;                   ///< folder or file of a checkpoint, or the name of a published model
  std::vector<std::string> prompts;    ///< where the driver takes them
  std::vector<std::string> overrides;  ///< of --set, which are laid over the deck
};

/// The result files of a driver.
struct DriverResults {
  std::string kind;                              ///< root attribute
  std::function<void(ResultFile& file)> tables;  ///< declares every table that a file may have
};

/// The schema of the result files of a program as JSON; Kokkos need not run.
/// \param has_deck whether its runs have one
std::string describe_results(const DriverResults& results, bool has_deck);

/// How a driver goes on with an interrupted run.
enum class Resumes {
  no,               ///< it does not
  finished_cases,   ///< it keeps the finished cases in the result file
  from_checkpoint,  ///< as the deck says
};

/// What a driver has besides decks.
struct DriverFeatures {
  bool table = false;             ///< prints a table of cases, as --format says
  Resumes resumes = Resumes::no;  ///< goes on with an interrupted run
  bool prompts = false;           ///< takes prompts after the model
  DriverResults results;          ///< what it writes
  /// Writes the deck that a call without one means. Null: there is always a deck.
  std::function<std::string(const ModelCall& call)> deck_of_call = nullptr;
  /// What --model changes in a deck, as --set would. Null: the driver has no such option, and the model stands where a deck
  /// would.
  std::function<std::vector<std::string>(const std::string& model)> overrides_of_model = nullptr;
};

/// Describes a driver to its command line.
struct DriverInfo {
  std::string name;                            ///< of the program
  std::string summary;                         ///< one line
  std::function<std::string()> describe_deck;  ///< Markdown
  std::function<std::string()> deck_schema;    ///< JSON Schema
  DriverFeatures features{};                   ///< besides
};

/// A parsed command line.
struct CommandLine {
  DeckSource deck;                            ///< deck and overrides; --output is the last override
  ReportFormat format = ReportFormat::table;  ///< of the table of cases
  bool dry_run = false;                       ///< print what would run and stop
  bool resume = false;                        ///< keep the finished cases of an interrupted run
  bool print_deck = false;                    ///< print the resolved deck and stop
  std::vector<std::string> kokkos;            ///< arguments for Kokkos::initialize
  std::vector<std::string> all;               ///< the whole command line
};

/// Parses the command line, answers --help, --version, --describe-deck, --deck-schema and --describe-results, and calls
/// `run` with the rest, guarded. None of this starts Kokkos.
int driver_main(int argc, char** argv, const DriverInfo& info,
                const std::function<int(const CommandLine&)>& run);

/// Prints the warnings of a deck and, with --print-deck, the resolved deck.
/// \return whether the command line requests nothing else
bool print_deck(const CommandLine& line, const DeckRecord& record);

/// `driver_main` for decks of one kind: reads the deck, and calls `run` unless the deck was only to be printed.
template <class Deck>
int driver_main(int argc, char** argv, const char* program, const char* summary,
                Deck (*load)(const DeckSource&),
                const std::type_identity_t<std::function<int(const CommandLine&, Deck&)>>& run,
                const DriverFeatures& features = {}) {
  const DriverInfo info{program, summary, describe_deck_markdown<Deck>, describe_deck_json_schema<Deck>,
                        features};
  return driver_main(argc, argv, info, [&](const CommandLine& line) -> int {
    Deck deck = load(line.deck);
    return print_deck(line, deck.record) ? exit_ok : run(line, deck);
  });
}

/// Prints for --dry-run the cases of a run, each as `name_of_case` shows it.
/// \return exit_ok
template <class Case>
int list_cases(const RunTable& run, const std::vector<Case>& cases, std::string (*name_of_case)(const Case&)) {
  fmt::print("{} case{} of '{}':\n", cases.size(), cases.size() == 1 ? "" : "s", run.name);
  for (const Case& c : cases) fmt::print("  {}\n", name_of_case(c));
  return exit_ok;
}

}  // namespace kformer::drivers
