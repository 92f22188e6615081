// SPDX-License-Identifier: MIT
// kformer-layer: runs a transformer layer forward and backward over a grid of shapes and precisions.
#include <fmt/format.h>

#include <algorithm>

#include "app/memory/scratch.hpp"
#include "app/session.hpp"
#include "app/stop.hpp"
#include "decks/models/model_calls.hpp"
#include "kformer/load/llama_config.hpp"
#include "layer/layer_results.hpp"
#include "layer/layer_tensors.hpp"
#include "measure/spaces.hpp"
#include "sweep/case_loop.hpp"
#include "sweep/tensor_output.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* program = "kformer-layer";
constexpr const char* kind = "layer_sweep";
constexpr const char* summary =
    "Runs a transformer layer forward, backward and in training steps over a grid of shapes and "
    "precisions, and writes time, memory and accuracy to HDF5.";

// The cases, with batch and sequence of the tensor file where the deck leaves them open.
std::vector<LayerCase> cases_of(const LayerSweepDeck& deck, const std::optional<LayerTensors>& tensors) {
  std::vector<LayerCase> cases = expand(deck.sweep, measure::built_spaces());
  if (!tensors) return cases;
  for (LayerCase& c : cases) {
    const LayerShape given{c.batch ? c.batch : tensors->shape.batch,
                           c.seq_len ? c.seq_len : tensors->shape.seq_len};
    if (given.batch != tensors->shape.batch || given.seq_len != tensors->shape.seq_len)
      throw DeckError(fmt::format(
          "error: [sweep] asks for batch {} and seq_len {}, but hidden_states in {} has batch {} and "
          "seq_len {}; leave both keys out",
          given.batch, given.seq_len, deck.tensors->input.string(), tensors->shape.batch,
          tensors->shape.seq_len));
    c.batch = given.batch;
    c.seq_len = given.seq_len;
  }
  return cases;
}

bool wants_backward(const LayerSweepDeck& deck) {
  const auto& directions = deck.sweep.axes.direction;
  return std::ranges::any_of(directions, [](Direction d) { return d != Direction::forward; });
}

std::string name_of_case(const LayerCase& c) {
  return fmt::format("{:<8} {:<5} {:<9} batch {} seq_len {} {}", c.execution_space, name_of(c.dtype),
                     name_of(c.direction), c.batch, c.seq_len, name_of(c.impl));
}

std::vector<TensorLabel> labels_of(const std::vector<LayerCase>& cases) {
  std::vector<TensorLabel> labels;
  for (const LayerCase& c : cases)
    labels.push_back({c.execution_space, to_string(c.dtype), std::string(name_of(c.impl)), program});
  return labels;
}

void declare_results(ResultFile& file) {
  declare_load(file, 0);
  LayerResults(file, LlamaConfig());
}

int run_sweep(const LayerSweepDeck& deck, const LlamaConfig& config, const std::optional<LayerTensors>& tensors,
              const std::vector<LayerCase>& cases, ReportFormat format, ResultFile& file) {
  LayerResults tables(file, config);
  TensorOutput output(deck.tensors ? deck.tensors->output : std::filesystem::path(), labels_of(cases));
  if (deck.tensors)
    output.require_place(deck.tensors->input, file.path(), deck.output.overwrite || tables.finished() > 0);
  LayerSweep sweep(deck, config, tensors ? &*tensors : nullptr);
  CaseResult result;
  CaseLoop loop;
  for (const LayerCase& c : cases) loop.spaces.push_back(c.execution_space);
  loop.name = [&](std::size_t i) { return name_of_case(cases[i]); };
  loop.add_machine = [&](const auto& space, const auto& limits) { tables.add_machine(space, limits); };
  loop.scratch_per_thread = scratch_per_thread(config, false);
  loop.format = format;
  loop.labels = layer_labels();
  for (const LayerCase& c : cases) loop.points.push_back(layer_point(c));
  loop.run = [&](std::size_t i, const auto& stop) -> const Measurement& {
    return result = sweep.run(cases[i], stop);
  };
  loop.keep = [&](std::size_t i) {
    tables.add_case(result);
    output.write(i, sweep.last_results());
  };
  loop.finished = tables.finished();
  loop.recall = [&](std::size_t i) -> const Measurement& {
    output.resume(i);
    return result = {tables.measurement(i), cases[i]};
  };
  loop.finish = [&](std::FILE* log) { output.report(log); };
  return run_cases(loop, deck.run, deck.profile, file);
}

int run(const CommandLine& line, LayerSweepDeck& deck) {
  std::optional<LayerTensors> tensors;
  if (deck.tensors) tensors = read_layer_tensors(deck.tensors->input, deck.model, wants_backward(deck));
  const LlamaConfig config = llama_config(deck.model);
  const std::vector<LayerCase> cases = cases_of(deck, tensors);
  if (line.dry_run) return list_cases(deck.run, cases, name_of_case);
  Session session(line, program, kind, deck.run, deck.output, deck.record, log_beside(line.format));
  return run_sweep(deck, config, tensors, cases, line.format, session.file());
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  drivers::listen_to_signals();
  return drivers::driver_main(
      argc, argv, drivers::program, drivers::summary, load_layer_deck, drivers::run,
      {.table = true,
       .resumes = drivers::Resumes::finished_cases,
       .results = {drivers::kind, drivers::declare_results},
       .deck_of_call = [](const drivers::ModelCall& call) { return layer_deck_of(call.model); },
       .overrides_of_model = layer_model_overrides});
}
