// SPDX-License-Identifier: MIT
// kformer-attention: flash attention against standard attention over a grid of shapes and options.
#include <fmt/format.h>

#include <algorithm>

#include "app/memory/scratch.hpp"
#include "app/say.hpp"
#include "app/session.hpp"
#include "app/stop.hpp"
#include "attention/attention_results.hpp"
#include "attention/attention_tensors.hpp"
#include "measure/spaces.hpp"
#include "sweep/case_loop.hpp"
#include "sweep/tensor_output.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* program = "kformer-attention";
constexpr const char* kind = "attention_compare";
constexpr const char* summary =
    "Compares flash attention with standard attention over a grid of shapes and "
    "options, and writes time, memory and accuracy to HDF5.";

// The axes, completed from the tensor file.
AttentionAxes axes_of(const AttentionCompareDeck& deck, const std::optional<AttentionTensors>& tensors) {
  AttentionAxes axes = filled_axes(deck);
  if (!tensors) return axes;
  const AttentionShape& shape = tensors->shape;
  if (axes.dtype.empty()) axes.dtype = {shape.dtype};
  if (axes.direction.empty()) {
    axes.direction = {Direction::forward};
    if (tensors->has_gradient()) axes.direction.push_back(Direction::backward);
  }
  if (std::ranges::find(axes.direction, Direction::backward) != axes.direction.end() &&
      !tensors->has_gradient())
    throw DeckError(fmt::format("error: 'sweep.direction' asks for \"backward\", but {} has no grad_out",
                                deck.tensors->input.string()));
  axes.batch = {shape.batch};
  axes.q_len = {shape.q_len == shape.kv_len ? 0 : shape.q_len};
  axes.seq_len = {shape.kv_len};
  axes.num_attention_heads = {shape.q_heads};
  axes.num_key_value_heads = {shape.kv_heads};
  axes.head_dim = {shape.head_dim};
  axes.v_head_dim = {shape.v_head_dim};
  return axes;
}

std::string name_of_case(const AttentionCase& c) {
  return fmt::format("{:<8} {:<5} {:<9} {} seq_len {} {}", c.execution_space, name_of(c.dtype),
                     name_of(c.direction), configuration_text(c), c.seq_len, name_of(c.impl));
}

// Masks are in the names of files only where they differ.
std::vector<TensorLabel> labels_of(const std::vector<AttentionCase>& cases) {
  const auto differs = [&](auto AttentionCase::* axis) {
    return std::ranges::any_of(cases, [&](const AttentionCase& c) { return c.*axis != cases.front().*axis; });
  };
  const bool causal = differs(&AttentionCase::causal), window = differs(&AttentionCase::window);
  std::vector<TensorLabel> labels;
  for (const AttentionCase& c : cases) {
    labels.push_back({c.execution_space, to_string(c.dtype), std::string(name_of(c.impl)), program});
    if (causal) labels.back().options["causal"] = c.causal ? "yes" : "no";
    if (window) labels.back().options["window"] = std::to_string(c.window);
  }
  return labels;
}

void declare_results(ResultFile& file) {
  declare_load(file, 0);
  const AttentionResults tables(file);
  declare_comparison(file, {1});
}

int run_sweep(const AttentionCompareDeck& deck, const std::optional<AttentionTensors>& tensors,
              const std::vector<AttentionCase>& cases, ReportFormat format, ResultFile& file) {
  AttentionResults tables(file);
  TensorOutput output(deck.tensors ? deck.tensors->output : std::filesystem::path(), labels_of(cases));
  if (deck.tensors)
    output.require_place(deck.tensors->input, file.path(), deck.output.overwrite || tables.finished() > 0);
  AttentionSweep sweep(deck, tensors ? &*tensors : nullptr);
  Comparison comparison;
  AttentionResult result;
  CaseLoop loop;
  for (const AttentionCase& c : cases) loop.spaces.push_back(c.execution_space);
  loop.name = [&](std::size_t i) { return name_of_case(cases[i]); };
  loop.add_machine = [&](const auto& space, const auto& limits) { tables.add_machine(space, limits); };
  for (const AttentionCase& c : cases)
    loop.scratch_per_thread = std::max(
        loop.scratch_per_thread, scratch_per_thread(std::max(c.head_dim, c.v_head_dim), c.num_key_value_heads));
  loop.format = format;
  loop.labels = attention_labels();
  for (const AttentionCase& c : cases) loop.points.push_back(attention_point(c));
  loop.run = [&](std::size_t i, const auto& stop) -> const Measurement& {
    return result = sweep.run(cases[i], stop);
  };
  loop.keep = [&](std::size_t i) {
    tables.add_case(result);
    comparison.add(result);
    output.write(i, sweep.last_results());
  };
  loop.finished = tables.finished();
  loop.recall = [&](std::size_t i) -> const Measurement& {
    result = {tables.measurement(i), cases[i]};
    comparison.add(result);
    output.resume(i);
    return result;
  };
  loop.finish = [&](std::FILE* log) {
    if (!comparison.empty()) {
      tables.add_comparison(comparison);
      say(log, "{}\n", comparison_text(comparison));
    }
    output.report(log);
  };
  return run_cases(loop, deck.run, deck.profile, file);
}

int run(const CommandLine& line, const AttentionCompareDeck& deck) {
  std::optional<AttentionTensors> tensors;
  if (deck.tensors) tensors = read_attention_tensors(deck.tensors->input);
  const std::vector<AttentionCase> cases = expand(deck, axes_of(deck, tensors), measure::built_spaces());
  if (line.dry_run) return list_cases(deck.run, cases, name_of_case);
  Session session(line, program, kind, deck.run, deck.output, deck.record, log_beside(line.format));
  return run_sweep(deck, tensors, cases, line.format, session.file());
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  drivers::listen_to_signals();
  return drivers::driver_main(argc, argv, drivers::program, drivers::summary, load_attention_deck, drivers::run,
                              {.table = true,
                               .resumes = drivers::Resumes::finished_cases,
                               .results = {drivers::kind, drivers::declare_results}});
}
