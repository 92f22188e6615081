// SPDX-License-Identifier: MIT
// kformer-perf-recompute: training steps under every policy of recomputation, which take turns in one process.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kformer/memory/format_bytes.hpp"
#include "kformer/memory/planner.hpp"
#include "kformer/model/recompute_costs.hpp"
#include "kformer/train/trainer.hpp"
#include "measure/fill.hpp"
#include "measure/machine.hpp"
#include "measure/timing.hpp"
#include "measure/timing_samples.hpp"

namespace {

using namespace kformer;
using Exec = Kokkos::DefaultExecutionSpace;
using Model = Trainer<Exec, float>;

// Published configurations.
const std::map<std::string, LlamaConfig> shapes{{"smollm2-135m",
                                                 {.hidden_size = 576,
                                                  .intermediate_size = 1536,
                                                  .num_attention_heads = 9,
                                                  .num_key_value_heads = 3,
                                                  .head_dim = 64,
                                                  .num_hidden_layers = 30,
                                                  .vocab_size = 49152,
                                                  .tie_word_embeddings = true}},
                                                {"llama-3.2-1b",
                                                 {.hidden_size = 2048,
                                                  .intermediate_size = 8192,
                                                  .num_attention_heads = 32,
                                                  .num_key_value_heads = 8,
                                                  .head_dim = 64,
                                                  .num_hidden_layers = 16,
                                                  .vocab_size = 128256,
                                                  .tie_word_embeddings = true}}};

struct Options {
  std::string shape = "smollm2-135m";
  std::int64_t layers = 0, vocabulary = 0, rounds = 5;
  LayerShape batch{1, 512};
  std::vector<double> budgets{0.95, 0.85, 0.75};
};

// A training under one schedule, and its times.
struct Run {
  std::string name;
  RecomputeSchedule schedule;
  std::shared_ptr<Ledger> ledger = Ledger::create();
  std::unique_ptr<Model> model;
  std::vector<double> seconds;
};

TrainerOptions trainer_options(const Options& options, const RecomputeSchedule& schedule) {
  TrainerOptions result;
  result.shape = options.batch;
  result.recompute = schedule;
  result.schedule.learning_rate = 1e-4;
  return result;
}

std::size_t forecast(const LlamaConfig& config, const Options& options, const RecomputeSchedule& schedule) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  const Model model(config, trainer_options(options, schedule), *ledger);
  return ledger->peak_total();
}

MachineRates measured_rates() {
  const auto limits = measure::machine_limits_on<Exec>();
  return {.flops = limits.matmul_rate(DType::f32),
          .bytes = limits.copy_bandwidth,
          .transfers = limits.transfer_rate};
}

// The fixed policies, and the fastest schedule for each budget, a share of what `none` needs.
std::vector<Run> make_runs(const LlamaConfig& config, const Options& options) {
  std::vector<Run> runs;
  const auto add = [&](std::string name, RecomputeSchedule schedule) {
    Run run{.name = std::move(name), .schedule = std::move(schedule)};
    runs.push_back(std::move(run));
  };
  for (const Recompute kind : {Recompute::none, Recompute::pointwise, Recompute::layer, Recompute::nested})
    add(std::string(name_of(kind)), RecomputeSchedule::uniform(kind, config.num_hidden_layers));
  const std::size_t most = forecast(config, options, runs.front().schedule);
  const auto front = recompute_front(
      config.num_hidden_layers,
      recompute_costs<Exec, float>(config, options.batch, {.mode = LayerMode::training}, measured_rates()));
  for (const double share : options.budgets) {
    const auto fits = [&](const RecomputePlan& plan) {
      return static_cast<double>(forecast(config, options, plan.schedule)) <= share * static_cast<double>(most);
    };
    // Ascending in bytes, descending in seconds.
    const auto best = std::find_if(front.rbegin(), front.rend(), fits);
    if (best != front.rend()) add(fmt::format("auto {:g}", share), best->schedule);
  }
  return runs;
}

void initialise(const Exec& exec, Run& run, const LlamaConfig& config, const Options& options) {
  run.model = std::make_unique<Model>(config, trainer_options(options, run.schedule), *run.ledger);
  for (const Parameter& p : run.model->model().parameters()) {
    auto* data = static_cast<float*>(p.weight.data);
    if (p.weight.rank == 1)
      measure::fill_random(exec, data, p.weight.size(), 0, 0, 1);
    else
      measure::fill_normal(exec, data, p.weight.size(), 1, 0.02);
  }
  run.model->prepare(exec);
  exec.fence("kformer-perf-recompute: weights");
}

std::vector<TokenSequence> draw(std::mt19937& random, const LlamaConfig& config, const Options& options) {
  std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(config.vocab_size) - 1);
  std::vector<TokenSequence> batch(static_cast<std::size_t>(options.batch.batch));
  for (TokenSequence& sequence : batch)
    for (std::int64_t i = 0; i < options.batch.seq_len; ++i) {
      sequence.ids.push_back(token(random));
      sequence.targets.push_back(token(random));
    }
  return batch;
}

void print(const std::vector<Run>& runs) {
  const auto activations = [](const Run& run) { return run.ledger->peak(MemoryClass::activations); };
  fmt::print("{:10} {:>7} {:>15} {:>12} {:>8} {:>12}\n", "policy", "time", "quartiles", "activations", "",
             "total");
  for (const Run& run : runs) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < run.seconds.size(); ++i)
      ratios.push_back(run.seconds[i] / runs.front().seconds[i]);
    const double change =
        100 * (static_cast<double>(activations(run)) / static_cast<double>(activations(runs.front())) - 1);
    fmt::print("{:10} {:7.3f} {:7.3f} {:7.3f} {:>12} {:+7.1f}% {:>12}\n", run.name,
               measure::quantile(ratios, 0.5), measure::quantile(ratios, 0.25), measure::quantile(ratios, 0.75),
               format_bytes(activations(run)), change, format_bytes(run.ledger->peak_total()));
  }
}

void measure_policies(const Options& options) {
  LlamaConfig config = shapes.at(options.shape);
  if (options.layers > 0) config.num_hidden_layers = options.layers;
  if (options.vocabulary > 0) config.vocab_size = options.vocabulary;
  const Exec exec;
  std::vector<Run> runs = make_runs(config, options);
  for (Run& run : runs) initialise(exec, run, config, options);
  std::mt19937 random(1);
  // The first round touches memory for the first time and does not count.
  for (std::int64_t round = 0; round <= options.rounds; ++round) {
    const auto batch = draw(random, config, options);
    for (std::size_t turn = 0; turn < runs.size(); ++turn) {
      Run& run = runs[(turn + static_cast<std::size_t>(round)) % runs.size()];
      StepReport report;
      const auto step = [&] { report = run.model->step(exec, batch); };
      const double seconds = measure::seconds_of(exec, step);
      if (report.skipped)  // it did less than the others
        throw std::runtime_error(
            fmt::format("a step of {} was skipped: its gradients are not finite", run.name));
      if (round > 0) run.seconds.push_back(seconds);
    }
  }
  print(runs);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Training steps in float under every policy of recomputation, which take turns. Times are those of a "
      "round against `none` in the same round: their median and quartiles.");
  std::vector<std::string> names;
  for (const auto& [name, config] : shapes) names.push_back(name);
  app.add_option("shape", options.shape, "of the model")->check(CLI::IsMember(names))->capture_default_str();
  app.add_option("--layers", options.layers, "instead of all layers");
  app.add_option("--vocabulary", options.vocabulary, "instead of the whole vocabulary");
  app.add_option("--seq-len", options.batch.seq_len, "tokens of a sequence")->capture_default_str();
  app.add_option("--batch", options.batch.batch, "sequences of a step")->capture_default_str();
  app.add_option("--rounds", options.rounds, "steps of each policy that count")->capture_default_str();
  app.add_option("--budgets", options.budgets, "shares of the bytes of none, for the planner")
      ->delimiter(',')
      ->capture_default_str();
  const Kokkos::ScopeGuard kokkos(argc, argv);
  CLI11_PARSE(app, argc, argv);
  try {
    measure_policies(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "kformer-perf-recompute: {}\n", error.what());
    return 1;
  }
}
