// SPDX-License-Identifier: MIT
#include "app/command_line.hpp"

#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <cstdio>

#include "measure/provenance.hpp"

namespace kformer::drivers {

namespace {

const char* exit_code_help =
    "Exit codes: 0 ok, 1 failure, 2 usage, 3 deck invalid, 4 file error, 5 out of tolerance, 6 out of memory,\n"
    "7 no case ran, 75 stopped by a signal or the time limit.";

// A bare path with a backslash or a quote is not a TOML string, so it is quoted here.
std::string toml_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

int answer_or_run(int argc, char** argv, const DriverInfo& info,
                  const std::function<int(const CommandLine&)>& run) {
  ProgramArguments arguments = split_arguments(argc, argv);
  CommandLine line;
  line.all = arguments.all;
  line.kokkos = arguments.kokkos;

  CLI::App app{info.summary, info.name};
  app.footer(std::string(kokkos_help) + exit_code_help);
  std::string deck, output;
  bool describe = false, schema = false, version = false;
  app.add_option("DECK", deck, "Input deck (TOML); docs/decks.md explains the keys");
  app.add_option("-s,--set", line.deck.overrides, "Override a key: table.key=VALUE, may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-o,--output", output, "Result file; the same as --set output.file=FILE");
  app.add_flag("-n,--dry-run", line.dry_run, "Check the deck, print what would run, and stop");
  app.add_flag("--print-deck", line.print_deck, "Print the deck with every default filled in, and stop");
  app.add_flag("--describe-deck", describe, "Print every table and key of the deck as Markdown, and stop");
  app.add_flag("--deck-schema", schema, "Print the deck's JSON Schema, for editors, and stop");
  app.add_flag("-V,--version", version, "Print version and Kokkos configuration, and stop");
  try {
    app.parse(arguments.own);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_ok : exit_usage;
  }
  if (version) {
    fmt::print("{}\n{}", measure::version_line(info.name), measure::kokkos_summary());
    return exit_ok;
  }
  if (describe || schema) {
    fmt::print("{}", describe ? info.describe_deck() : info.deck_schema());
    return exit_ok;
  }
  if (deck.empty()) {
    fmt::print(stderr, "error: no deck given\n\n{}", app.help());
    return exit_usage;
  }
  line.deck.path = deck;
  if (!output.empty()) line.deck.overrides.push_back("output.file=" + toml_string(output));
  return run(line);
}

}  // namespace

int driver_main(int argc, char** argv, const DriverInfo& info,
                const std::function<int(const CommandLine&)>& run) {
  return guarded([&] { return answer_or_run(argc, argv, info, run); });
}

bool print_deck(const CommandLine& line, const DeckRecord& record) {
  for (const std::string& warning : record.warnings) fmt::print(stderr, "{}\n", warning);
  if (line.print_deck) fmt::print("{}", record.resolved);
  return line.print_deck;
}

}  // namespace kformer::drivers
