// SPDX-License-Identifier: MIT
#include "app/command_line.hpp"

#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "app/completion.hpp"
#include "app/say.hpp"
#include "io/nearest_name.hpp"
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

// An empty variable of a shell would otherwise count as no option.
std::string not_empty(const std::string& word) { return word.empty() ? "it must not be empty" : ""; }

// The last part of a path, without the ending of a deck.
std::string file_name(const std::filesystem::path& path) {
  const std::filesystem::path last = path.has_filename() ? path.filename() : path.parent_path().filename();
  return (last.extension() == ".toml" ? last.stem() : last).string();
}

// Whether the word in the place of a deck is a model: a folder, a file of weights, or a name that is neither a file nor
// that of a deck.
bool names_model(const std::string& word) {
  const std::filesystem::path path = word;
  const std::string ending = Impl::lower(path.extension().string());
  if (ending == ".toml") return false;
  std::error_code ignored;
  return ending == ".gguf" || ending == ".safetensors" || !std::filesystem::is_regular_file(path, ignored);
}

// CLI11 would take a word in brackets for a list of values, and {} for none. So prompts are words that no option takes.
class AppWithPrompts : public CLI::App {
 public:
  using CLI::App::App;

  std::vector<std::string> prompts() const {
    std::vector<std::string> words, unknown;
    for (const auto& [kind, word] : missing_)
      if (kind != CLI::detail::Classifier::POSITIONAL_MARK)
        (kind == CLI::detail::Classifier::NONE ? words : unknown).push_back(word);
    if (!unknown.empty()) throw CLI::ExtrasError(get_name(), unknown);
    return words;
  }
};

constexpr const char* prompts_help = "Texts after MODEL are prompts: to continue, or to answer.\n";

// The options of a driver, and the variables that they fill.
struct Options {
  Options(CommandLine& line, const DriverInfo& info) : app(info.summary, info.name) {
    const DriverFeatures& has = info.features;
    const bool model_in_place = has.deck_of_call && !has.overrides_of_model;
    app.footer(std::string(has.prompts ? prompts_help : "") + kokkos_help + exit_code_help);
    app.allow_extras(has.prompts);
    app.add_option(model_in_place ? "MODEL" : "DECK", deck,
                   model_in_place ? "Published model by name, folder or file of one, or input deck (TOML)"
                                  : "Input deck (TOML); docs/decks.md explains the keys")
        ->type_name("");
    app.add_option("-s,--set", line.deck.overrides, "Override a key: table.key=VALUE, may be repeated")
        ->type_name("KEY=VALUE")
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (has.overrides_of_model)
      app.add_option("-m,--model", model,
                     "Published model by name, or folder of one: instead of the deck's, or without a deck")
          ->type_name("MODEL")
          ->check(not_empty);
    else if (model_in_place)  // hidden: the error says what to write
      app.add_option("-m,--model", model)->group("");
    app.add_option("-o,--output", output, "Result file; the same as --set output.file=FILE")->check(not_empty);
    app.add_flag("--overwrite", overwrite, "Replace an existing result file; --set output.overwrite=true");
    if (has.resumes == Resumes::finished_cases)
      app.add_flag("--resume", line.resume,
                   "Keep the finished cases of an interrupted run of the same deck, and run the others");
    if (has.resumes == Resumes::from_checkpoint)
      app.add_flag("--resume", resume, "Continue from the newest checkpoint; --set checkpoint.resume=true");
    if (has.table) add_report_format(app, "-f,--format", line.format);
    app.add_flag("-n,--dry-run", line.dry_run, "Check the deck, print what would run, and stop");
    app.add_flag("--print-deck", line.print_deck, "Print the deck with every default filled in, and stop");
    app.add_flag("--describe-deck", describe, "Print every table and key of the deck as Markdown, and stop");
    app.add_flag("--deck-schema", schema, "Print the deck's JSON Schema, for editors, and stop");
    app.add_flag("--describe-results", describe_results,
                 "Print the schema of the result files as JSON, and stop");
    app.add_flag("-V,--version", version, "Print version and Kokkos configuration, and stop");
    add_completion(app, info.deck_schema);
    answer_wrong_calls(app);
  }

  AppWithPrompts app;
  std::vector<std::string> prompts{};
  std::string deck{}, model{}, output{};
  bool overwrite = false, resume = false, describe = false, schema = false, version = false,
       describe_results = false;
};

// How a model is named in a call.
std::string call_with(const DriverInfo& info, const std::string& model) {
  return fmt::format("{}{} {}{}", info.name, info.features.overrides_of_model ? " --model" : "", model,
                     info.features.prompts ? " PROMPT" : "");
}

// What people write for a model and is none; nothing if the call has no such word.
std::optional<std::string> fault_of_model(const Options& given, const DriverInfo& info) {
  if (!info.features.overrides_of_model && !given.model.empty())
    return fmt::format("a model stands in the place of a deck; write {}", call_with(info, given.model));
  const std::filesystem::path path = given.deck;
  std::error_code ignored;
  if (info.features.deck_of_call && path.filename() == "config.json" &&
      std::filesystem::is_regular_file(path, ignored))
    return fmt::format("'{}' is no deck; the folder that holds it is a model: write {}", given.deck,
                       call_with(info, path.has_parent_path() ? path.parent_path().string() : "."));
  return {};
}

// Where the deck comes from: a file, or what the call says without one; nothing if it says neither.
std::optional<std::string> fault_of_source(const Options& given, const DriverInfo& info, CommandLine& line) {
  if (auto fault = fault_of_model(given, info)) return fault;
  const DriverFeatures& has = info.features;
  const bool in_place = has.deck_of_call && !has.overrides_of_model;
  const std::string model =
      in_place && !given.deck.empty() && names_model(given.deck) ? given.deck : given.model;
  const bool without_deck = in_place ? !model.empty() : given.deck.empty() && !model.empty();
  if (!without_deck && given.deck.empty()) return in_place ? "no deck and no model given" : "no deck given";
  if (!without_deck && !given.prompts.empty())
    return "prompts belong to a model; a deck has them in [[prompt]]";
  if (without_deck && has.prompts && given.prompts.empty()) return "no prompt given after the model";
  if (without_deck) {
    line.deck.text = has.deck_of_call({model, given.prompts, line.deck.overrides});
    return {};
  }
  std::error_code ignored;
  if (has.overrides_of_model && names_model(given.deck) && !std::filesystem::exists(given.deck, ignored))
    return fmt::format("there is no deck '{0}'; a published model is named by --model {0}", given.deck);
  line.deck.path = given.deck;
  if (!model.empty()) {
    line.deck.model_overrides = has.overrides_of_model(model);
    // Another model has a result file of its own.
    line.deck.model_overrides.push_back("run.name=" +
                                        toml_string(file_name(given.deck) + '-' + file_name(model)));
  }
  return {};
}

int answer_or_run(int argc, char** argv, const DriverInfo& info,
                  const std::function<int(const CommandLine&)>& run) {
  ProgramArguments arguments = split_arguments(argc, argv);
  CommandLine line;
  line.all = arguments.all;
  line.kokkos = arguments.kokkos;
  Options given(line, info);
  try {
    given.app.parse(arguments.own);
    given.prompts = given.app.prompts();
  } catch (const CLI::ParseError& error) {
    return given.app.exit(error) == 0 ? exit_ok : exit_usage;
  }
  if (given.version) {
    fmt::print("{}\n{}", measure::version_line(info.name), measure::kokkos_summary());
    return exit_ok;
  }
  if (given.describe || given.schema) {
    fmt::print("{}", given.describe ? info.describe_deck() : info.deck_schema());
    return exit_ok;
  }
  if (given.describe_results) {
    fmt::print("{}", describe_results(info.features.results, true));
    return exit_ok;
  }
  if (const auto fault = fault_of_source(given, info, line)) {
    say(stderr, "error: {}\n{} --help lists the options\n", *fault, info.name);
    return exit_usage;
  }
  if (given.overwrite) line.deck.overrides.push_back("output.overwrite=true");
  if (given.resume) line.deck.overrides.push_back("checkpoint.resume=true");
  if (!given.output.empty()) line.deck.overrides.push_back("output.file=" + toml_string(given.output));
  return run(line);
}

}  // namespace

std::string describe_results(const DriverResults& results, bool has_deck) {
  ResultFile file({}, {.discard = true});
  measure::write_provenance(file, results.kind, {}, {});
  if (has_deck) measure::write_deck(file, {}, {}, {});
  results.tables(file);
  return file.schema();
}

int driver_main(int argc, char** argv, const DriverInfo& info,
                const std::function<int(const CommandLine&)>& run) {
  return guarded([&] { return answer_or_run(argc, argv, info, run); });
}

bool print_deck(const CommandLine& line, const DeckRecord& record) {
  for (const std::string& warning : record.warnings) say(stderr, "{}\n", warning);
  if (line.print_deck) fmt::print("{}", record.resolved);
  return line.print_deck;
}

}  // namespace kformer::drivers
