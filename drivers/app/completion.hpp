// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "app/report.hpp"

namespace CLI {
class App;
}

namespace kformer::drivers {

/// A program for a shell that completes a command line.
enum class Shell { bash, zsh, fish };

/// An option as completions need it.
struct CompletedOption {
  std::vector<std::string> names;    ///< "-o", "--output"
  std::string help;                  ///< one line
  bool takes_value = false;          ///< whether a value follows
  std::vector<std::string> choices;  ///< values; empty: any
  bool takes_file = false;           ///< whether the value names a file
  bool goes_on = false;              ///< whether a choice is the beginning of a value
};

/// The options of a command line, without those that help hides.
std::vector<CompletedOption> completed_options(const CLI::App& app);

/// The completion file of a program. Words that are no options complete to file names.
std::string completion_text(const std::string& program, const std::vector<CompletedOption>& options,
                            Shell shell);

/// Adds the option --completion SHELL, which prints the completion file of the program and ends it. Call it after all
/// other options are added.
/// \param deck_schema JSON Schema of the deck, whose keys --set takes. Null: there is no deck
void add_completion(CLI::App& app, const std::function<std::string()>& deck_schema = nullptr);

/// Adds an option that takes the name of a format.
/// \param names "-f,--format"
void add_report_format(CLI::App& app, const std::string& names, ReportFormat& format);

/// Errors of a command line begin with "error: ", as all errors of programs do. Of an option that there is not, they name the
/// nearest.
void answer_wrong_calls(CLI::App& app);

}  // namespace kformer::drivers
