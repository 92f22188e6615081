// SPDX-License-Identifier: MIT
#include "app/completion.hpp"

#include <CLI/CLI.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "io/nearest_name.hpp"

namespace kformer::drivers {

namespace {

const std::map<std::string, Shell> shells{{"bash", Shell::bash}, {"fish", Shell::fish}, {"zsh", Shell::zsh}};

// Text inside single quotes of a shell.
std::string in_quotes(const std::string& text) {
  std::string inside;
  for (const char c : text) inside += c == '\'' ? "'\\''" : std::string(1, c);
  return "'" + inside + "'";
}

std::string bash_text(const std::string& program, const std::vector<CompletedOption>& options) {
  std::string function = "_" + program, names, cases;
  std::replace(function.begin(), function.end(), '-', '_');
  // One file name a line: they may have spaces. Bash takes "=" for a word of its own.
  const char* const without_space = "compopt -o nospace 2>/dev/null; ";  // it fails outside of a completion
  const std::string file_names = "mapfile -t COMPREPLY < <(compgen -f -- \"$word\")";
  for (const CompletedOption& option : options) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", fmt::join(option.names, " "));
    if (!option.takes_value) continue;
    std::string values = ":";
    if (!option.choices.empty())
      values = fmt::format("{}COMPREPLY=($(compgen -W {} -- \"$word\"))", option.goes_on ? without_space : "",
                           in_quotes(fmt::format("{}", fmt::join(option.choices, " "))));
    else if (option.takes_file)
      values = file_names;
    cases += fmt::format("    {}) {}; return ;;\n", fmt::join(option.names, "|"), values);
  }
  return fmt::format(
      "{0}() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}\n"
      "  [[ $before != = ]] || before=${{COMP_WORDS[COMP_CWORD - 2]}}\n"
      "  [[ $word != = ]] || word=\n"
      "  case $before in\n{2}  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W {3} -- \"$word\"))\n"
      "  else\n"
      "    {4}\n"
      "  fi\n"
      "}}\n"
      "complete -o filenames -F {0} {1}\n",
      function, program, cases, in_quotes(names), file_names);
}

std::string zsh_text(const std::string& program, const std::vector<CompletedOption>& options) {
  std::string lines;
  for (const CompletedOption& option : options) {
    std::string help;
    for (const char c : option.help)
      help += c == '[' || c == ']' || c == ':' ? std::string("\\") + c : std::string(1, c);
    std::string value;
    const std::string choices = fmt::format("{}", fmt::join(option.choices, " "));
    if (!choices.empty())
      value = option.goes_on ? ":value:{compadd -S \"\" -- " + choices + "}" : ":value:(" + choices + ")";
    else if (option.takes_value)
      value = option.takes_file ? ":file:_files" : ":value:";
    for (const std::string& name : option.names) {
      const char* const joined = option.takes_value && name.starts_with("--") ? "=" : "";
      lines += fmt::format("  {} \\\n", in_quotes(fmt::format("*{}{}[{}]{}", name, joined, help, value)));
    }
  }
  return fmt::format("#compdef {}\n_arguments \\\n{}  '*:file:_files'\n", program, lines);
}

std::string fish_text(const std::string& program, const std::vector<CompletedOption>& options) {
  std::string lines;
  for (const CompletedOption& option : options) {
    lines += "complete -c " + program;
    for (const std::string& name : option.names)
      lines += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    if (!option.choices.empty())
      lines += fmt::format(" -x -a {}", in_quotes(fmt::format("{}", fmt::join(option.choices, " "))));
    else if (option.takes_value)
      lines += option.takes_file ? " -r" : " -x";
    lines += " -d " + in_quotes(option.help) + "\n";
  }
  return lines;
}

// "{a,b,c}" of an option that takes one of these.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

// "table.key=" for each key of a deck; of lists of tables none, which --set cannot reach.
std::vector<std::string> keys_of(const std::string& deck_schema) {
  std::vector<std::string> keys;
  const auto schema = nlohmann::ordered_json::parse(deck_schema);
  for (const auto& [table, contents] : schema.at("properties").items())
    if (contents.contains("properties"))
      for (const auto& [key, ignored] : contents.at("properties").items())
        keys.push_back(table + "." + key + "=");
  return keys;
}

// "; did you mean '--set'?" for the first word that looks like an option of the program.
std::string near_option(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CompletedOption& option : completed_options(app))
    std::ranges::copy_if(option.names, std::back_inserter(names),
                         [](const std::string& name) { return name.starts_with("--"); });
  for (const std::string& argument : app.remaining(true)) {
    const std::string word = argument.substr(0, argument.find('='));
    if (word.starts_with("--") && !Impl::nearest_names(word, names).empty())
      return Impl::suggest_names(word, names);
  }
  return {};
}

}  // namespace

std::vector<CompletedOption> completed_options(const CLI::App& app) {
  std::vector<CompletedOption> options;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || option->get_group().empty()) continue;
    CompletedOption completed;
    for (const std::string& name : option->get_snames()) completed.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) completed.names.push_back("--" + name);
    completed.help = option->get_description().substr(0, option->get_description().find('\n'));
    completed.takes_value = option->get_items_expected_max() > 0;
    completed.choices = choices_of(*option);
    const std::string type = option->get_type_name();
    completed.takes_file =
        completed.takes_value && completed.choices.empty() && (type == "TEXT" || type == "MODEL");
    options.push_back(std::move(completed));
  }
  const auto known = [&](const CompletedOption& option) {
    return std::ranges::any_of(options, [&](const CompletedOption& o) { return o.names == option.names; });
  };
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (CompletedOption& option : completed_options(*command))
      if (!known(option)) options.push_back(std::move(option));
  return options;
}

std::string completion_text(const std::string& program, const std::vector<CompletedOption>& options,
                            Shell shell) {
  switch (shell) {
    case Shell::bash:
      return bash_text(program, options);
    case Shell::zsh:
      return zsh_text(program, options);
    case Shell::fish:
      break;
  }
  return fish_text(program, options);
}

void add_completion(CLI::App& app, const std::function<std::string()>& deck_schema) {
  app.add_option_function<std::string>(
         "--completion",
         [&app, deck_schema](const std::string& shell) {
           std::vector<CompletedOption> options = completed_options(app);
           for (CompletedOption& option : options)
             if (deck_schema && std::ranges::find(option.names, "--set") != option.names.end()) {
               option.choices = keys_of(deck_schema());
               option.goes_on = true;
             }
           std::string text = completion_text(app.get_name(), options, shells.at(shell));
           text.pop_back();  // CLI11 ends it
           throw CLI::CallForVersion(text, 0);
         },
         "Print the completion file of a shell (bash, fish or zsh), and stop")
      ->check(CLI::IsMember(shells))
      ->option_text("SHELL");
}

void add_report_format(CLI::App& app, const std::string& names, ReportFormat& format) {
  static constexpr auto& formats = names_of<ReportFormat>;
  const auto take = [&format](const std::string& name) {
    format = static_cast<ReportFormat>(std::ranges::find(formats, name) - formats.begin());
  };
  app.add_option_function<std::string>(names, take, "Format of the table: table, csv, json or markdown")
      ->check(CLI::IsMember(std::vector<std::string>(formats.begin(), formats.end())))
      ->default_str(std::string(name_of(format)));
}

void answer_wrong_calls(CLI::App& app) {
  app.failure_message([](const CLI::App* program, const CLI::Error& error) {
    return fmt::format("error: {}{}\n{} --help lists the options\n", error.what(), near_option(*program),
                       program->get_name());
  });
}

}  // namespace kformer::drivers
