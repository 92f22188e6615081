// SPDX-License-Identifier: MIT
// Generates text with a published checkpoint: example_generate FOLDER [PROMPT]. Without arguments, lets the model
// stories260K in the folder KFORMER_DATA tell a story, and checks it against the one published with the model.
#include <Kokkos_Core.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "kformer/model/generator.hpp"
#include "kformer/text/tokenizer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;

// [generate]
std::string generate(const std::filesystem::path& folder, std::string_view prompt) {
  const Exec exec;
  const auto ledger = kformer::Ledger::create();
  const auto checkpoint = kformer::Checkpoint::open(folder);  // a folder or a GGUF file
  checkpoint.check_against(checkpoint.model());               // every tensor is there, with its shape
  const auto tokenizer =
      kformer::open_tokenizer(kformer::TokenizerFormat::sentencepiece, folder / "tokenizer.model");
  const kformer::LlamaConfig config = kformer::llama_config(checkpoint.model());

  kformer::LlamaDecoder<Exec, float> decoder(config, {.max_positions = 512}, *ledger);
  kformer::load_weights(exec, checkpoint, decoder, *ledger);
  decoder.prepare(exec);
  const auto cache = kformer::KvCache<Exec, float>::create(
      config, {.num_layers = config.num_hidden_layers, .capacity = 512, .max_step_tokens = 512}, *ledger);
  kformer::Generator<Exec, float> generator(
      decoder, *cache, {.max_new_tokens = 200, .end_of_text = tokenizer->eos(), .sampling = {.temperature = 0}},
      *ledger);

  std::vector<std::int32_t> tokens = tokenizer->encode(prompt);
  tokens.insert(tokens.begin(), tokenizer->bos().value());
  generator.start(exec, {tokens});
  while (generator.running()) generator.step(exec);
  return tokenizer->decode(generator.sequences()[0].tokens);
}
// [generate]

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const char* data = std::getenv("KFORMER_DATA");
  const std::filesystem::path folder =
      argc > 1 ? argv[1] : std::filesystem::path(data ? data : ".") / "stories260K";
  if (!std::filesystem::exists(folder)) {
    std::printf("skipped: there is no folder %s\n", folder.c_str());
    return 77;
  }
  const std::string text = generate(folder, argc > 2 ? argv[2] : "");
  std::printf("%s\n", text.c_str());
  if (argc > 1) return 0;

  std::ifstream file(folder / "expected_greedy.txt");
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  return text.size() > 300 && expected.starts_with(text) ? 0 : 1;
}
