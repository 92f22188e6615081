// SPDX-License-Identifier: MIT
#include "parallel/context_runs.hpp"

// Packed documents that lie across ranks, and adapters that lose elements of their tokens.
namespace kformer::Testing {
namespace {

TrainerOptions packed_options(const Kind& kind) {
  TrainerOptions options = long_options(kind);
  options.layer.packed = true;
  return options;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(context_documents)

// Windows are shorter than a chunk, or longer.
BOOST_AUTO_TEST_CASE(documents_lie_across_ranks) {
  for (const Kind& kind : kinds)
    for (const std::int64_t window : {0, 2, 17}) {
      LlamaConfig config = model(kind, 1);
      config.sliding_window = window;
      check_context(packed_options(kind), config, std::string(kind.name) + ", window " + std::to_string(window),
                    pack_documents);
    }
}

BOOST_AUTO_TEST_CASE(three_heads_share_keys) {
  LlamaConfig config = model(kinds[0], 1);
  config.num_attention_heads = 9;
  config.num_key_value_heads = 3;
  check_context(packed_options(kinds[0]), config, "9 heads", pack_documents);
}

BOOST_AUTO_TEST_CASE(tokens_see_their_whole_document) {
  TrainerOptions options = packed_options(kinds[0]);
  options.layer.causal = false;
  check_context(options, model(kinds[0], 1), "not causal", pack_documents);
}

BOOST_AUTO_TEST_CASE(documents_differ_from_whole_sequences) {
  const Run<double> packed(packed_options(kinds[0]), model(kinds[0], 1), 0, 8, pack_documents),
      whole(packed_options(kinds[0]), model(kinds[0], 1), 0, 8);
  BOOST_TEST(std::abs(packed.reports[0].loss - whole.reports[0].loss) > 1e-3);
}

// Which elements are lost depends on the place of a token among those of the step.
BOOST_AUTO_TEST_CASE(adapters_lose_the_same_elements) {
  for (const bool packed : {false, true})
    for (const bool magnitudes : {false, true}) {
      TrainerOptions options = packed ? packed_options(kinds[1]) : long_options(kinds[1]);
      options.layer.lora = LoraConfig::all(2, 4);
      options.layer.lora.dropout = 0.25;
      options.layer.lora.magnitudes = magnitudes;
      options.dropout_seed = 7;
      check_context(options, model(kinds[1], 1),
                    std::string(packed ? "packed" : "whole") + (magnitudes ? ", magnitudes" : ""),
                    packed ? pack_documents : EditSequences());
    }
}

BOOST_AUTO_TEST_CASE(documents_on_grids) {
  for (const GridIndex& shape : context_grids(world()->size()))
    check_grid(world(), shape, packed_options(kinds[1]), model(kinds[1], shape.tensor), pack_documents);
}

BOOST_AUTO_TEST_CASE(forecasts_of_documents) {
  TrainerOptions options = packed_options(kinds[2]);
  options.layer.lora = LoraConfig::all(2, 4);
  options.layer.lora.dropout = 0.25;
  check_forecast<bf16>(world(), options, model(kinds[2], 1), "packed", pack_documents);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
