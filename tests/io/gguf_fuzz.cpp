// SPDX-License-Identifier: MIT
#include <array>
#include <boost/test/unit_test.hpp>

#include "gguf_bytes.hpp"
#include "kformer/io/checkpoint.hpp"
#include "random_bytes.hpp"
#include "scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

/// Numbers at the edges of what 32 and 64 bits can do, types, and names that mean something.
const std::vector<std::string> pieces{raw<std::uint64_t>(0),
                                      raw<std::uint64_t>(1),
                                      raw<std::uint64_t>(32),
                                      raw<std::uint64_t>(~0ULL),
                                      raw<std::uint64_t>(1ULL << 63),
                                      raw<std::uint64_t>(1ULL << 32),
                                      raw<std::uint32_t>(0),
                                      raw<std::uint32_t>(~0U),
                                      raw<std::uint32_t>(8),
                                      raw<std::uint32_t>(9),
                                      raw<std::uint32_t>(35),
                                      raw<std::uint32_t>(30),
                                      raw_text("general.alignment") + u32_value(8),
                                      raw_text("rope_freqs.weight"),
                                      raw_text("output.weight"),
                                      "blk.0.attn_q.weight"};

/// A valid file with some bytes changed, most of them in the header, where they matter.
std::string mutated_file(Random& random) {
  static const std::array<std::string, 3> files{small_gguf_model().bytes(), small_gguf_model("qwen2").bytes(),
                                                small_gguf_model("qwen3").bytes()};
  const std::string& file = one_of(random, files);
  constexpr std::size_t header = 1400;
  std::string bytes = file.substr(0, header);
  const std::size_t mutations = 1 + below(random, 3);
  for (std::size_t i = 0; i < mutations; ++i) {
    if (below(random, 2) == 0)
      bytes = mutated(random, std::move(bytes), pieces);
    else
      bytes.replace(below(random, bytes.size()), 4, raw(static_cast<std::uint32_t>(below(random, 64))));
  }
  bytes += file.substr(header);
  if (below(random, 8) == 0) bytes.resize(below(random, bytes.size()));
  return bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gguf_fuzz)

BOOST_AUTO_TEST_CASE(mutated_files_are_read_or_refused) {
  constexpr int rounds = 50'000;
  read_mutations(rounds, rounds / 100, rounds * 9 / 10, [](Random& random) {
    const std::string bytes = mutated_file(random);
    const auto file = GgufFile::parse(std::as_bytes(std::span(bytes)), "mutated");
    BOOST_REQUIRE(read_everything(file) <= bytes.size());
  });
}

BOOST_AUTO_TEST_CASE(mutated_checkpoints_are_read_or_refused) {
  constexpr int rounds = 3000;
  const ScratchDirectory directory;
  read_mutations(rounds, rounds / 100, rounds * 9 / 10, [&](Random& random) {
    put_contents(directory / "model.gguf", mutated_file(random));
    const auto checkpoint = Checkpoint::open(directory / "model.gguf");
    for (const auto& name : checkpoint.names()) {
      const auto bytes = checkpoint.at(name).bytes;
      BOOST_REQUIRE(std::vector<std::byte>(bytes.begin(), bytes.end()).size() == bytes.size());
    }
    checkpoint.check_against(checkpoint.model());
  });
}

BOOST_AUTO_TEST_CASE(mutated_configurations_are_read_or_refused) {
  constexpr int rounds = 5000;
  const std::string valid = R"({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64,
    "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 1000, "max_position_embeddings": 512, "eos_token_id": [1, 2], "rope_scaling": {"rope_type": "llama3",
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
    "sliding_window": 12, "use_sliding_window": true, "max_window_layers": 0, "layer_types": ["full_attention"]})";
  const auto pieces = json_pieces({"1.5", "1e999", "[[]]", "{}", "\"none\"", "9223372036854775808"});
  const ScratchDirectory directory;
  read_mutations(rounds, rounds / 1000, rounds / 2, [&](Random& random) {
    std::string text = valid;
    for (std::size_t mutations = 1 + below(random, 3); mutations > 0; --mutations)
      text = mutated(random, std::move(text), pieces);
    put_contents(directory / "config.json", text);
    const auto model = read_model_config(directory / "config.json");
    BOOST_REQUIRE(model_tensor_shapes(model).size() > 2);
  });
}

BOOST_AUTO_TEST_SUITE_END()
