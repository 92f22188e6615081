// SPDX-License-Identifier: MIT
// QLoRA: adapters learn to count in circles on a base of random weights, whose projections are quantised to NF4. They are saved
// in the layout of PEFT and loaded beside the same base for generation. Checks that the decoder counts, and that its
// log-probabilities are those of the trainer, to the bit.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "circles.hpp"
#include "kformer/core/view_of.hpp"
#include "kformer/io/model_table.hpp"
#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "kformer/model/generator.hpp"
#include "kformer/train/trainer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
constexpr int steps = 40;

void draw(const Exec& exec, const std::vector<kformer::Parameter>& parameters) {
  const Kokkos::Random_XorShift64_Pool<Exec> random(1);
  for (const kformer::Parameter& p : parameters)
    if (p.weight.rank == 1)
      Kokkos::deep_copy(exec, kformer::view_of<float*>(p.weight), 1.0f);  // the norms
    else if (p.name.ends_with("lora_B.weight"))
      Kokkos::deep_copy(exec, kformer::view_of<float**>(p.weight), 0.0f);  // training starts at the base
    else
      Kokkos::fill_random(exec, kformer::view_of<float**>(p.weight), random, -0.2f, 0.2f);
}

// A model as it is published: dense weights and config.json.
void write_base(const Exec& exec, const std::filesystem::path& folder, kformer::Ledger& ledger) {
  const kformer::LlamaConfig config{.hidden_size = 64,
                                    .intermediate_size = 128,
                                    .num_attention_heads = 4,
                                    .num_key_value_heads = 2,
                                    .head_dim = 16,
                                    .num_hidden_layers = 2,
                                    .vocab_size = numbers,
                                    .max_position_embeddings = 2 * length};
  const kformer::LlamaModel<Exec, float> base(config, {.batch = 1, .seq_len = length},
                                              {.mode = kformer::LayerMode::inference}, ledger);
  draw(exec, base.parameters());
  std::filesystem::create_directories(folder);
  kformer::save_weights(exec, base.parameters(), folder / "model.safetensors", ledger);
  std::ofstream(folder / "config.json") << kformer::model_config_json({config});
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const auto ledger = kformer::Ledger::create();
  const std::filesystem::path base_folder = "example_base", adapter_folder = "example_adapter_of_base";
  write_base(exec, base_folder, *ledger);

  // [train]
  const auto base = kformer::Checkpoint::open(base_folder);
  const kformer::LlamaConfig config = kformer::llama_config(base.model());
  kformer::WeightFormats formats;  // the seven projections of each layer
  for (const std::string& name : base.names())
    if (name.ends_with("_proj.weight")) formats[name] = kformer::QuantizedFormat::nf4;
  const auto lora = kformer::LoraConfig::all(8, 16);  // rank and alpha
  kformer::Trainer<Exec, float> trainer(config,
                                        {.shape = {.batch = 5, .seq_len = length},
                                         .layer = {.batch_invariant = true, .lora = lora, .formats = formats},
                                         .schedule = {.learning_rate = 1e-2}},
                                        *ledger);
  kformer::load_weights(exec, base, trainer.model(), *ledger);  // quantises what `formats` names
  draw(exec, trainer.model().adapters());
  trainer.prepare(exec);
  for (int step = 0; step < steps; ++step) {
    const kformer::StepReport report = trainer.step(exec, circles());
    if (step % 10 == 0) std::printf("step %d: loss %.3f\n", step, report.loss);
  }
  // [train]

  // [save]
  std::filesystem::create_directories(adapter_folder);
  kformer::save_adapter(exec, trainer.model().adapters(), lora, {.base_model = base_folder}, adapter_folder,
                        *ledger);
  // [save]

  // [load]
  const auto adapter = kformer::AdapterCheckpoint::open(adapter_folder, config);
  kformer::LlamaDecoder<Exec, float> decoder(config,
                                             {.max_logit_rows = numbers,
                                              .max_positions = length + 1,
                                              .formats = formats,
                                              .batch_invariant = true,
                                              .adapters = {adapter.lora()}},
                                             *ledger);
  kformer::load_weights(exec, base, decoder, *ledger);
  kformer::load_adapter(exec, adapter, decoder.adapters(0), *ledger);
  decoder.prepare(exec);
  // [load]
  const auto cache = kformer::KvCache<Exec, float>::create(
      config, {.num_layers = config.num_hidden_layers, .batch = numbers, .capacity = length + 1}, *ledger);
  kformer::Generator<Exec, float> generator(
      decoder, *cache,
      {.batch = numbers, .max_new_tokens = length, .prefill_chunk = 1, .sampling = {.temperature = 0}},
      *ledger);
  std::vector<std::vector<std::int32_t>> prompts;
  for (int first = 0; first < numbers; ++first) prompts.push_back({first});
  generator.start(exec, prompts);
  while (generator.running()) generator.step(exec);

  const auto trained = trainer.log_probabilities(exec, circles());
  int wrong = 0, unequal = 0;
  for (int s = 0; s < numbers; ++s)
    for (int i = 0; i < length; ++i) {
      wrong += generator.sequences()[s].tokens[i + 1] != circles()[s].targets[i];
      unequal += generator.sequences()[s].log_probabilities[i + 1] != trained.of(s)[i];
    }
  std::printf("of %d tokens %d are wrong, %d have other log-probabilities\n", numbers * length, wrong, unequal);
  std::filesystem::remove_all(base_folder);
  std::filesystem::remove_all(adapter_folder);
  return wrong == 0 && unequal == 0 ? 0 : 1;
}
