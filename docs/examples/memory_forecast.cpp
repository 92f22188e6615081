// SPDX-License-Identifier: MIT
// Memory before it is needed: a ledger that only counts gives the bytes of a model without allocating any.
// Checks the weights against the published number of parameters, and a small model against its real bytes.
#include <Kokkos_Core.hpp>
#include <cstdio>

#include "kformer/model/llama_model.hpp"
#include "kformer/train/optimizer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using kformer::Ledger;
using kformer::MemoryClass;

// [forecast]
// Makes a model in training with its optimizer, and gives the ledger in which its memory was booked.
template <class T>
std::shared_ptr<Ledger> train_once(const kformer::LlamaConfig& config, kformer::LayerShape shape,
                                   Ledger::Mode mode) {
  const auto ledger = Ledger::create(mode);
  const kformer::LlamaModel<Exec, T> model(config, shape, {}, *ledger);
  const kformer::Optimizer<Exec, T> optimizer(model.parameters(), {}, *ledger);
  return ledger;
}
// [forecast]

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  // [use]
  const kformer::LlamaConfig llama_1b{.hidden_size = 2048,
                                      .intermediate_size = 8192,
                                      .num_attention_heads = 32,
                                      .num_key_value_heads = 8,
                                      .head_dim = 64,
                                      .num_hidden_layers = 16,
                                      .vocab_size = 128256,
                                      .tie_word_embeddings = true};
  const auto forecast = train_once<kformer::bf16>(llama_1b, {.batch = 1, .seq_len = 4096}, Ledger::Mode::count);
  std::printf("%s", forecast->report().c_str());
  // [use]

  kformer::LlamaConfig small = llama_1b;
  small.hidden_size = 64;
  small.num_hidden_layers = 2;
  small.vocab_size = 100;
  const auto counted = train_once<float>(small, {2, 16}, Ledger::Mode::count)->peak_total();
  const auto allocated = train_once<float>(small, {2, 16}, Ledger::Mode::allocate)->peak_total();
  std::printf("a small model: forecast %zu bytes, allocated %zu\n", counted, allocated);
  const std::size_t rotary_tables = 2 * 4096 * 32 * sizeof(float), weights = 1235814400 * std::size_t(2);
  return forecast->peak(MemoryClass::weights) == weights + rotary_tables && counted == allocated ? 0 : 1;
}
