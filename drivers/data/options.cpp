// SPDX-License-Identifier: MIT
#include "data/options.hpp"

#include <CLI/CLI.hpp>
#include <map>

#include "app/completion.hpp"
#include "app/program.hpp"
#include "kformer/core/enum_names.hpp"
#include "measure/provenance.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* program = "kformer-data";

const char* exit_code_help =
    "Exit codes: 0 ok, 1 failure, 2 usage, 4 file error (also: data that is malformed, empty or too short),\n"
    "75 stopped by a signal (the cache keeps the files that were finished).";

template <NamedEnum Enum>
std::map<std::string, Enum> by_name() {
  std::map<std::string, Enum> values;
  for (std::size_t i = 0; i < names_of<Enum>.size(); ++i)
    values[std::string(names_of<Enum>[i])] = static_cast<Enum>(i);
  return values;
}

/// An option whose value is the name of an enumerator.
template <NamedEnum Enum>
CLI::Option* add_choice(CLI::App& app, const std::string& name, Enum& value, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name, [&value](const std::string& text) { value = by_name<Enum>().at(text); },
          help + " (" + list_of_names<Enum>() + ")")
      ->check(CLI::IsMember(by_name<Enum>()))
      ->option_text("NAME=" + std::string(name_of(value)));
}

/// What both commands take.
struct Shared {
  DataCommand command;
  TokenizerFormat tokenizer = TokenizerFormat::automatic;
  ChatStyle style = ChatStyle::chatml;
  std::filesystem::path cache;
  bool no_cache = false;

  void add_to(CLI::App& app) {
    DataOptions& data = command.data;
    const CLI::Range positive(std::int64_t(1), std::int64_t(1) << 31);
    app.add_option("FILES", data.files, "Files, in this order; none for synthetic");
    add_choice(app, "-f,--format", data.format, "What the files contain");
    app.add_option("-t,--tokenizer", command.tokenizer_path, "File or folder of the tokenizer");
    add_choice(app, "--tokenizer-format", tokenizer, "Format of the tokenizer; byte needs no file");
    add_choice(app, "-p,--packing", data.packing, "How documents fill sequences");
    app.add_option("-s,--seq-len", data.seq_len, "Tokens of a sequence")
        ->capture_default_str()
        ->check(positive);
    app.add_option("--vocab-size", data.vocab_size,
                   "Vocabulary size: reject token ids at or above it; 0 = no limit")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    add_choice(app, "--chat-style", style, "How conversations are written; without it as the tokenizer says")
        ->option_text("NAME");
    app.add_option("--cache", cache, "Folder of tokenised files, made where it is missing")
        ->default_str(default_cache_folder().string());
    app.add_flag("--no-cache", no_cache, "Tokenise every time")->excludes("--cache");
    add_choice(app, "--task", data.synthetic.task, "What is generated");
    app.add_option("--samples", data.synthetic.samples, "Generated documents")
        ->capture_default_str()
        ->check(positive);
    app.add_option("--max-length", data.synthetic.max_length, "Letters of a text, or digits of a summand")
        ->capture_default_str()
        ->check(positive);
    app.add_option("--seed", data.synthetic.seed, "Seed of the generated data")->capture_default_str();
  }

  /// What the options of a command that was chosen mean together.
  void finish(const CLI::App& app) {
    DataOptions& data = command.data;
    const bool synthetic = data.format == DataFormat::synthetic;
    if (app.count("--chat-style") > 0) command.chat_style = style;
    if (app.count("--cache") > 0) data.cache = cache;
    if (no_cache) data.cache = "";
    if (!command.tokenizer_path.empty() || tokenizer == TokenizerFormat::byte) command.tokenizer = tokenizer;
    if (data.files.empty() != synthetic)
      throw CLI::ValidationError("FILES", synthetic ? "synthetic data has none" : "at least one is required");
    const bool needs_tokenizer = data.format == DataFormat::text || data.format == DataFormat::chat;
    if (needs_tokenizer && !command.tokenizer)
      throw CLI::ValidationError("--tokenizer", "text and chat need one, or --tokenizer-format byte");
  }
};

}  // namespace

std::optional<DataCommand> data_command(int argc, char** argv, int& exit_code) {
  ProgramArguments arguments = split_arguments(argc, argv);
  CLI::App app{"Prepares training data, and shows what a training program will see.", program};
  app.footer(exit_code_help);
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", measure::version_line(program), "Print the version, and stop");
  CLI::App* prepare =
      app.add_subcommand("prepare", "Tokenise files into the cache, and report on the data set");
  CLI::App* inspect = app.add_subcommand(
      "inspect",
      "Report on the data set, with the lengths of its documents, and show sequences with their masks");
  Shared prepared, inspected;
  prepared.add_to(*prepare);
  inspected.add_to(*inspect);
  inspected.command.inspect = true;
  inspected.command.sequences = {0};
  inspect->add_option("-n,--sequence", inspected.command.sequences, "Sequences to show, from 0 on")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  for (CLI::App* command : {prepare, inspect}) command->footer(exit_code_help);
  add_completion(app);
  answer_wrong_calls(app);
  try {
    app.parse(arguments.own);
    Shared& chosen = inspect->parsed() ? inspected : prepared;
    chosen.finish(inspect->parsed() ? *inspect : *prepare);
    return chosen.command;
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? exit_ok : exit_usage;
    return std::nullopt;
  }
}

}  // namespace kformer::drivers
