// SPDX-License-Identifier: MIT
// Steps whose loss is a function of log-probabilities: the adapters of a random model learn to prefer counting up to
// counting down. Checks the first loss, which is log 2, and that all pairs are in the right order at the end.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include "kformer/core/view_of.hpp"
#include "kformer/train/preference_loss.hpp"
#include "kformer/train/trainer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
constexpr int numbers = 10, length = 8, steps = 30;

// The first two numbers are the prompt, whose targets have no loss.
kformer::TokenSequence counted(int first, int step) {
  kformer::TokenSequence s;
  for (int i = 0; i < length; ++i) {
    s.ids.push_back((first + i * (i < 2 ? 1 : step) + numbers * length) % numbers);
    s.targets.push_back(i == 0 ? -100 : (first + (i + 1) * step + numbers * length) % numbers);
  }
  return s;
}

// Chosen, rejected, chosen, ...
std::vector<kformer::TokenSequence> pairs() {
  std::vector<kformer::TokenSequence> all;
  for (int first = 0; first < numbers; ++first) {
    all.push_back(counted(first, 1));
    all.push_back(counted(first, -1));
  }
  return all;
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const auto ledger = kformer::Ledger::create();
  const kformer::LlamaConfig config{.hidden_size = 32,
                                    .intermediate_size = 64,
                                    .num_attention_heads = 2,
                                    .num_key_value_heads = 1,
                                    .head_dim = 16,
                                    .num_hidden_layers = 1,
                                    .vocab_size = numbers,
                                    .max_position_embeddings = length};
  kformer::Trainer<Exec, float> trainer(config,
                                        {.shape = {.batch = 4, .seq_len = length},
                                         .layer = {.lora = kformer::LoraConfig::all(4, 8)},
                                         .schedule = {.learning_rate = 1e-2}},
                                        *ledger);
  const Kokkos::Random_XorShift64_Pool<Exec> random(1);
  for (const kformer::Parameter& p : trainer.model().parameters())
    if (p.weight.rank == 1)
      Kokkos::deep_copy(exec, kformer::view_of<float*>(p.weight), 1.0f);  // the norms
    else
      Kokkos::fill_random(exec, kformer::view_of<float**>(p.weight), random, -0.5f, 0.5f);
  for (const kformer::Parameter& p : trainer.model().adapters())
    if (p.name.ends_with("lora_B.weight"))
      Kokkos::deep_copy(exec, kformer::view_of<float**>(p.weight), 0.0f);
    else
      Kokkos::fill_random(exec, kformer::view_of<float**>(p.weight), random, -0.2f, 0.2f);
  trainer.prepare(exec);

  const auto sequences = pairs();
  kformer::PreferenceLoss first, last;
  for (int step = 0; step < steps; ++step) {
    // [step]
    // The model without its adapters is the reference.
    const auto base = trainer.log_probabilities(exec, sequences, kformer::AdapterUse::off);
    std::vector<double> references;
    for (std::size_t i = 0; i < base.sequences(); ++i) references.push_back(base.sum(i));
    kformer::PreferenceObjective objective(references, {.beta = 0.1});
    const kformer::StepReport report = trainer.step(exec, sequences, std::ref(objective));
    // [step]
    last = objective.result();
    if (step == 0) first = last;
    if (step % 10 == 0) std::printf("step %d: loss %.3f, margin %.3f\n", step, report.loss, last.margin);
  }
  std::printf("loss %.3f, accuracy %.2f\n", last.loss, last.accuracy);
  return std::abs(first.loss - std::log(2.0)) < 1e-6 && last.loss < 0.5 * first.loss && last.accuracy == 1 ? 0
                                                                                                           : 1;
}
