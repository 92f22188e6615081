// SPDX-License-Identifier: MIT
// kformer-quantize: converts the matrices of a checkpoint, quantised or dense.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/program.hpp"
#include "app/report.hpp"
#include "app/say.hpp"
#include "app/start_kokkos.hpp"
#include "app/stop.hpp"
#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "measure/provenance.hpp"
#include "quantize/adapter_file.hpp"
#include "quantize/adapter_merge.hpp"
#include "quantize/options.hpp"
#include "quantize/output_folder.hpp"
#include "quantize/quantize_report.hpp"
#include "quantize/tensor_quantizer.hpp"

namespace kformer::drivers {
namespace {

void list_plans(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans, ReportFormat format) {
  Report table = tensor_table(checkpoint, plans, format, false);
  fmt::print("{}", table.head());
  ReportTotals totals;
  for (const TensorPlan& plan : plans) {
    totals.add(report_line(checkpoint.layout(plan.name), plan));
    fmt::print("{}", table.row({}));
  }
  fmt::print("{}", table.end());
  say(log_beside(format), "{}", report_text(totals));
}

void print_left_out(const Checkpoint& checkpoint, const std::vector<TensorPlan>& plans, std::FILE* log) {
  for (const std::string& name : checkpoint.names())
    if (std::ranges::find(plans, name, &TensorPlan::name) == plans.end())
      say(log, "left out, because the model has no such tensor: {}\n", name);
}

void print_tokenizer_hint(const Checkpoint& checkpoint, const std::filesystem::path& output, std::FILE* log) {
  if (const GgufFile* gguf = checkpoint.gguf())
    say(log, "the tokenizer stays in the GGUF file; decks for {} need\n[tokenizer]\npath = \"{}\"\n",
        output.string(), std::filesystem::absolute(gguf->source()).string());
}

// The result file of --report, which a failure leaves no part of.
class ErrorsFile {
 public:
  explicit ErrorsFile(const QuantizeOptions& options)
      : m_file(*options.report, {.overwrite = options.overwrite}), m_results(m_file) {}
  ~ErrorsFile() {
    std::error_code ignored;
    std::filesystem::remove(m_file.part_path(), ignored);  // there is none after finish()
  }
  ErrorsFile(const ErrorsFile&) = delete;
  ErrorsFile& operator=(const ErrorsFile&) = delete;

  void begin(const QuantizeOptions& options) {
    measure::write_provenance(m_file, quantize_kind, options.output.filename().string(), options.all);
    add_paths(m_file, options.input.string(), options.output.string());
  }
  void add(const auto& line) { m_results.add(line); }
  void add(const std::string& group, const LogitDifference& d) { write_difference(m_file, group, d); }
  void finish(std::FILE* log) {
    m_file.finish();
    say(log, "results: {}\n", m_file.path().string());
  }

 private:
  ResultFile m_file;
  QuantizeResults m_results;
};

// What merged weights compute, dense and as they were written, against weights and adapter.
void compare(const Checkpoint& checkpoint, AdapterMerge& merge, const QuantizeOptions& options,
             const std::filesystem::path& folder, std::optional<ErrorsFile>& report) {
  if (options.adapter_tokens == 0) return;
  const auto& starts = checkpoint.model().bos_token_ids;
  const auto tokens =
      merge.tokens(starts.empty() ? 0 : static_cast<std::int32_t>(starts.front()), options.adapter_tokens);
  const Logits live = merge.logits(checkpoint, AdapterForm::live, tokens);
  const auto add = [&](const char* name, const char* text, const Logits& logits) {
    const LogitDifference found = difference(live, logits);
    std::FILE* log = log_beside(options.table);
    say(log, "{}", prose(log, report_text(text, found)));
    if (report) report->add(name, found);
  };
  const Checkpoint written = Checkpoint::open(folder);
  const Logits found = merge.logits(written, AdapterForm::none, tokens);
  if (quantized_weights(written).empty()) return add("merged", "merged", found);
  add("merged", "merged", merge.logits(checkpoint, AdapterForm::merged, tokens));
  add("merged_quantized", "merged and quantised", found);
}

// Returns why it was stopped before it wrote anything, or nothing.
std::optional<std::string> convert(const Checkpoint& checkpoint,
                                   const std::optional<AdapterCheckpoint>& adapter,
                                   const std::vector<TensorPlan>& plans, const QuantizeOptions& options,
                                   const std::filesystem::path& folder, std::optional<ErrorsFile>& report) {
  const auto quantizer = make_tensor_quantizer(options.space);
  const auto merge = adapter ? make_adapter_merge(options.space, checkpoint, *adapter) : nullptr;
  const StopRequest stop(0);
  PackedCheckpointWriter writer(checkpoint);
  std::deque<std::vector<std::byte>> stored;  // the writer reads them at the end
  Report table = tensor_table(checkpoint, plans, options.table, true);
  fmt::print("{}", table.head());
  ReportTotals totals;
  std::optional<std::string> stopped;
  for (const TensorPlan& plan : plans) {
    stopped = stop.reason();
    if (stopped) break;
    const CheckpointTensor& tensor = checkpoint.at(plan.name);
    const auto sum =
        adapter && is_adapted(*adapter, plan.name) ? merge->merged(plan.name, tensor) : MergedTensor();
    QuantizedTensor quantized = quantizer->run(
        plan.name, sum.bytes.empty() ? tensor : CheckpointTensor{sum.type, tensor.shape, sum.bytes},
        plan.format);
    ReportLine line = report_line(checkpoint.layout(plan.name), plan);
    line.errors = quantized.errors;
    const auto& bytes = stored.emplace_back(std::move(quantized.bytes));
    writer.add(plan.name, plan.format ? CheckpointTensor{line.format_after, tensor.shape, bytes} : tensor);
    totals.add(line);
    if (report) report->add(line);
    fmt::print("{}", table.row(error_values(quantized.errors)));
    std::fflush(stdout);
  }
  fmt::print("{}", table.end());
  if (stopped) return stopped;
  say(log_beside(options.table), "{}", report_text(totals));
  if (report) report->add(totals);
  writer.write(folder);
  if (merge) compare(checkpoint, *merge, options, folder, report);
  return {};
}

int write_checkpoint(const Checkpoint& checkpoint, const std::optional<AdapterCheckpoint>& adapter,
                     OutputFolder& output, const QuantizeOptions& options) {
  auto plans = plan_tensors(checkpoint, options.format, options.embedding);
  // Weights that have the format already are others with the adapter.
  for (TensorPlan& plan : plans)
    if (adapter && is_adapted(*adapter, plan.name))
      plan.format = options.format.value_or(checkpoint.layout(plan.name).type);
  if (!options.dry_run) require_device();
  std::FILE* log = log_beside(options.table);
  if (options.dry_run) {
    list_plans(checkpoint, plans, options.table);
    print_left_out(checkpoint, plans, log);
    return exit_ok;
  }
  output.make();
  std::optional<ErrorsFile> report;
  if (options.report) report.emplace(options);
  const auto kokkos = start_kokkos(options.all.front(), options.kokkos, options.threads);
  if (report) report->begin(options);
  if (const auto reason = convert(checkpoint, adapter, plans, options, output.staging(), report)) {
    say(log, "stopped ({}); nothing was written\n", *reason);
    return exit_stopped;
  }
  output.install();
  print_left_out(checkpoint, plans, log);
  const bool packed = std::ranges::any_of(plans, [&](const TensorPlan& plan) {
    return quantized_format_of(type_after(checkpoint.layout(plan.name), plan.format)).has_value();
  });
  say(log, "{}checkpoint: {}\n", packed ? "packed " : "", options.output.string());
  print_tokenizer_hint(checkpoint, options.output, log);
  if (report) report->finish(log);
  return exit_ok;
}

int run(const QuantizeOptions& options) {
  const Checkpoint checkpoint = Checkpoint::open(options.input);
  checkpoint.check_against(checkpoint.model());
  std::optional<OutputFolder> output;
  if (!options.output.empty()) output.emplace(options.output, options.input, checkpoint, options.overwrite);
  std::optional<AdapterCheckpoint> adapter;
  const LlamaConfig model = llama_config(checkpoint.model());
  if (!options.adapter.empty()) adapter = AdapterCheckpoint::open(options.adapter, model);
  std::optional<AdapterFile> file;
  const std::filesystem::path folder = checkpoint.folder().empty() ? "." : checkpoint.folder();
  const std::vector<std::filesystem::path> sources{options.input, folder, options.adapter};
  if (!options.adapter_gguf.empty()) file.emplace(options.adapter_gguf, *adapter, sources, options.overwrite);
  const int code = output ? write_checkpoint(checkpoint, adapter, *output, options) : exit_ok;
  if (code != exit_ok || !file) return code;
  if (!options.dry_run) file->write(model);
  say(log_beside(options.table), "{}adapter for llama.cpp: {}\n", options.dry_run ? "not written: " : "",
      file->path().string());
  return exit_ok;
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  drivers::listen_to_signals();
  return drivers::program_main(argc, argv, drivers::quantize_options, drivers::run);
}
