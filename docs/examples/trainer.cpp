// SPDX-License-Identifier: MIT
// The trainer of the library teaches a model to count in circles, saves it in the published layout, and loads it into
// another trainer. Checks that it learns, and that the loaded model has the same loss.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "circles.hpp"
#include "kformer/core/view_of.hpp"
#include "kformer/io/model_table.hpp"
#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "kformer/train/trainer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
constexpr int steps = 60;

void draw(const Exec& exec, const std::vector<kformer::Parameter>& parameters) {
  const Kokkos::Random_XorShift64_Pool<Exec> random(1);
  for (const kformer::Parameter& p : parameters)
    if (p.weight.rank == 1)
      Kokkos::deep_copy(exec, kformer::view_of<float*>(p.weight), 1.0f);  // the norms
    else
      Kokkos::fill_random(exec, kformer::view_of<float**>(p.weight), random, -0.15f, 0.15f);
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const auto ledger = kformer::Ledger::create();
  // [trainer]
  const kformer::LlamaConfig config{.hidden_size = 32,
                                    .intermediate_size = 64,
                                    .num_attention_heads = 2,
                                    .num_key_value_heads = 1,
                                    .head_dim = 16,
                                    .num_hidden_layers = 1,
                                    .vocab_size = numbers,
                                    .max_position_embeddings = length};
  const kformer::TrainerOptions options{.shape = {.batch = 4, .seq_len = length},
                                        .optimizer = {.max_norm = 1},
                                        .schedule = {.kind = kformer::ScheduleKind::cosine,
                                                     .learning_rate = 1e-2,
                                                     .min_learning_rate = 1e-3,
                                                     .steps = steps,
                                                     .warmup_steps = 5}};
  kformer::Trainer<Exec, float> trainer(config, options, *ledger);
  draw(exec, trainer.model().parameters());
  trainer.prepare(exec);
  for (int step = 0; step < steps; ++step) {
    const kformer::StepReport report = trainer.step(exec, circles());  // micro-batches of 4, 4 and 2 sequences
    if (step % 20 == 0) std::printf("step %d: loss %.3f\n", step, report.loss);
  }
  // [trainer]
  const double loss = trainer.evaluate(exec, circles());

  // [save]
  const std::filesystem::path folder = "counting";
  std::filesystem::create_directories(folder);
  kformer::save_weights(exec, trainer.model().parameters(), folder / "model.safetensors", *ledger);
  std::ofstream(folder / "config.json") << kformer::model_config_json({config});
  // [save]

  // [load]
  const auto checkpoint = kformer::Checkpoint::open(folder);
  kformer::Trainer<Exec, float> loaded(kformer::llama_config(checkpoint.model()), options, *ledger);
  kformer::load_weights(exec, checkpoint, loaded.model(), *ledger);
  loaded.prepare(exec);
  // [load]
  const double again = loaded.evaluate(exec, circles());
  std::printf("loss %.4f, of the loaded model %.4f\n", loss, again);
  std::filesystem::remove_all(folder);
  return loss < 0.1 && loss == again ? 0 : 1;
}
