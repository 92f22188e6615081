// SPDX-License-Identifier: MIT
#include "quantize/options.hpp"

#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include "app/command_line.hpp"
#include "app/completion.hpp"
#include "app/program.hpp"
#include "measure/provenance.hpp"
#include "measure/spaces.hpp"
#include "quantize/quantize_report.hpp"

namespace kformer::drivers {

namespace {

constexpr const char* program = "kformer-quantize";

const char* exit_code_help =
    "Exit codes: 0 ok, 1 failure, 2 usage, 4 file error (also: an output that exists, weights that cannot be "
    "quantised),\n6 out of memory, 75 stopped by a signal (nothing is written).";

using Formats = std::map<std::string, std::optional<StoredType>>;

Formats formats_by_option() {
  Formats formats{{"same", std::nullopt}};
  for (const QuantizedFormat format : quantized_formats)
    formats[CLI::detail::to_lower(to_string(format))] = format;
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    formats[std::string(name_of(dtype))] = dtype;
  return formats;
}

std::vector<std::string> names_of(const Formats& formats) {
  std::vector<std::string> names;
  for (const auto& [name, format] : formats) names.push_back(name);
  return names;
}

// What CLI11 cannot say: a checkpoint needs a format, and something is to be written.
void require_output(const CLI::App& app, const QuantizeOptions& options) {
  const bool any = !options.output.empty();
  if (any && app.count("--format") == 0) throw CLI::RequiredError("--format");
  if (!any && options.adapter_gguf.empty())
    throw CLI::ValidationError("OUTPUT", "is required, unless --adapter-gguf names a file");
  const auto whole = [](const std::filesystem::path& path) {
    std::error_code ignored;
    return weakly_canonical(absolute(path, ignored), ignored);
  };
  const std::filesystem::path folder = whole(options.output / "weights").parent_path(),
                              report = whole(options.report.value_or("")),
                              adapter = whole(options.adapter_gguf);
  for (const auto& [option, file] : {std::pair{"--report", report}, {"--adapter-gguf", adapter}})
    if (any && (file == folder || file.parent_path() == folder))
      throw CLI::ValidationError(option, "must not be in OUTPUT, whose files are those of the checkpoint");
  if (report == adapter && options.report)
    throw CLI::ValidationError("--adapter-gguf", "must not be the file of --report");
  if (any) return;
  for (const char* option : {"--format", "--embedding", "--adapter-tokens", "--report"})
    if (app.count(option) > 0) throw CLI::ValidationError(option, "needs OUTPUT");
}

// What is chosen by a word.
struct Words {
  std::string format, embedding = "same", space = "default";
};

void add_conversion(CLI::App& app, QuantizeOptions& options, Words& words, const Formats& formats) {
  app.add_option("INPUT", options.input, "Safetensors folder or file, GGUF file, or packed checkpoint")
      ->required();
  app.add_option("OUTPUT", options.output,
                 "Folder of the new checkpoint; without it only --adapter-gguf is written");
  app.add_option("-f,--format", words.format,
                 "Format of the layer matrices, required with OUTPUT; same: as stored")
      ->check(CLI::IsMember(names_of(formats)));
  app.add_option("-e,--embedding", words.embedding,
                 "Format of the token embedding and of lm_head; same: as stored")
      ->capture_default_str()
      ->check(CLI::IsMember(names_of(formats)));
  CLI::Option* adapter = app.add_option(
      "-a,--adapter", options.adapter,
      "Folder of an adapter in PEFT's layout, or its GGUF file: added to the weights before they "
      "are quantised");
  app.add_option("--adapter-gguf", options.adapter_gguf, "Write the adapter as a GGUF file, for llama.cpp")
      ->needs(adapter);
  app.add_option("--adapter-tokens", options.adapter_tokens,
                 "With an adapter: drawn tokens on which the result is compared with weights and adapter; 0: "
                 "no comparison")
      ->needs(adapter)
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t(0), std::int64_t(1) << 20));
}

void add_run(CLI::App& app, QuantizeOptions& options, Words& words, std::vector<std::string> spaces) {
  spaces.emplace_back("default");
  app.add_option("--space", words.space, "Execution space to convert on")
      ->capture_default_str()
      ->check(CLI::IsMember(spaces));
  app.add_option("--threads", options.threads, "Host threads; 0: Kokkos default")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t(0), std::int64_t(1) << 16));
  add_report_format(app, "--table-format", options.table);
  app.add_option("-r,--report", options.report, "Result file (HDF5) with the errors of every tensor");
  app.add_flag("--overwrite", options.overwrite,
               "Replace the checkpoint in OUTPUT, the result file and the adapter file");
  app.add_flag("-n,--dry-run", options.dry_run, "List what would be converted, and stop");
}

void add_descriptions(CLI::App& app) {
  app.add_flag_callback(
      "--describe-results",
      [] {
        fmt::print("{}", describe_results({quantize_kind, declare_quantize_results}, false));
        throw CLI::Success();
      },
      "Print the schema of the result file as JSON, and stop");
  std::string version = measure::version_line(program) + "\n" + measure::kokkos_summary();
  version.pop_back();
  app.set_version_flag("-V,--version", version, "Print version and Kokkos configuration, and stop");
  add_completion(app);
}

}  // namespace

std::optional<QuantizeOptions> quantize_options(int argc, char** argv, int& exit_code) {
  ProgramArguments arguments = split_arguments(argc, argv);
  QuantizeOptions options;
  options.all = arguments.all;
  options.kokkos = arguments.kokkos;

  const Formats formats = formats_by_option();
  const auto spaces = measure::built_spaces();
  Words words;
  CLI::App app{"Converts the matrices of a checkpoint, quantised or dense, and reports the errors.", program};
  app.footer(std::string(kokkos_help) + exit_code_help);
  add_conversion(app, options, words, formats);
  add_run(app, options, words, spaces);
  add_descriptions(app);
  answer_wrong_calls(app);
  try {
    app.parse(arguments.own);
    require_output(app, options);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? exit_ok : exit_usage;
    return std::nullopt;
  }
  if (!options.output.has_filename()) options.output = options.output.parent_path();  // "folder/"
  if (!words.format.empty()) options.format = formats.at(words.format);
  options.embedding = formats.at(words.embedding);
  options.space = words.space == "default" ? spaces.front() : words.space;
  return options;
}

}  // namespace kformer::drivers
