// SPDX-License-Identifier: MIT
// kformer-perf-blocks: every block besides attention, and the decoder layer, timed with cold caches, beside
// what the machine could do at best.
#include "blocks/block_cases.hpp"
#include "program.hpp"

namespace {

using namespace kformer;
using namespace kformer::perf;

LlamaConfig config(std::int64_t hidden, std::int64_t intermediate, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t head_dim) {
  LlamaConfig c;
  c.hidden_size = hidden;
  c.intermediate_size = intermediate;
  c.num_attention_heads = heads;
  c.num_key_value_heads = kv_heads;
  c.head_dim = head_dim;
  c.rope.theta = 500000;
  return c;
}

LlamaConfig language_model(LlamaConfig c, std::int64_t layers, std::int64_t vocabulary, bool tied = true) {
  c.num_hidden_layers = layers;
  c.vocab_size = vocabulary;
  c.tie_word_embeddings = tied;
  return c;
}

const LlamaConfig llama_8b = config(4096, 14336, 32, 8, 128);

// Arrays of 64 MiB in float.
const BlockSizes of_host{
    .dtypes = {DType::f32, DType::bf16},
    .more_dtypes = {DType::f16},
    .elements = 1 << 24,
    .hidden_sizes = {128, 1024, 2048, 4096},
    .more_hidden_size = 2048,
    .seq_len = 2048,
    .logits = 32 << 20,
    .vocabularies = {32768, 128256},
    .output_rows = 4096,
    .output_vocabulary = 32000,
    .table = 1 << 26,
    .models = {{"llama-3.2-1b", config(2048, 8192, 32, 8, 64)}, {"llama-3.1-8b", llama_8b}},
    .language_models = {{"smollm2-135m", language_model(config(576, 1536, 9, 3, 64), 30, 49152)},
                        {"llama-3.2-1b", language_model(config(2048, 8192, 32, 8, 64), 16, 128256)}},
    .batch = 2,
    .tokens = 1024};

// Of a data-centre GPU: 16384 tokens of a model of 4096 features, logits of 4096 tokens.
const BlockSizes of_device{.dtypes = {DType::f32, DType::bf16},
                           .more_dtypes = {DType::f16},
                           .elements = 16384 * 4096,
                           .hidden_sizes = {1024, 4096},
                           .more_hidden_size = 4096,
                           .seq_len = 4096,
                           .logits = std::int64_t(4096) * 128256,
                           .vocabularies = {32768, 128256},
                           .output_rows = 4096,
                           .output_vocabulary = 128256,
                           .table = std::int64_t(128256) * 4096,
                           .models = {{"llama-3.1-8b", llama_8b}},
                           .language_models = {{"llama-3.1-8b", language_model(llama_8b, 32, 128256, false)}},
                           .batch = 2,
                           .tokens = 4096};

const BlockSizes tiny{.dtypes = {DType::f32, DType::bf16},
                      .more_dtypes = {DType::f16},
                      .elements = 1 << 18,
                      .hidden_sizes = {32},
                      .more_hidden_size = 32,
                      .seq_len = 32,
                      .logits = 1 << 18,
                      .vocabularies = {100},
                      .output_rows = 1100,
                      .output_vocabulary = 100,
                      .table = 1 << 18,
                      .models = {{"tiny", config(128, 192, 4, 2, 32)}},
                      .language_models = {{"tiny", language_model(config(128, 192, 4, 2, 32), 2, 100)}},
                      .batch = 2,
                      .tokens = 128};

std::vector<Case> cases_of(const BlockSizes& sizes) {
  std::vector<Case> all;
  for (const auto& cases :
       {rms_norm_cases, rope_cases, swiglu_cases, cross_entropy_cases, linear_cross_entropy_cases,
        embedding_cases, adamw_cases, linear_cases, quantized_cases, layer_cases, decode_cases})
    for (Case& c : cases(sizes)) all.push_back(std::move(c));
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      "kformer-perf-blocks", argc, argv, [] { return cases_of(on_host ? of_host : of_device); },
      [] { return cases_of(tiny); });
}
