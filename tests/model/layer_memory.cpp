// SPDX-License-Identifier: MIT
#include "kformer/model/decoder_layer.hpp"

#include <vector>

#include "support/every_kernel.hpp"

namespace kformer::Testing {
namespace {

constexpr LayerShape shape{2, 1024};

/// Llama-3.2-1B with another width of the feed-forward block.
LlamaConfig config_with(std::int64_t intermediate) {
  return {.hidden_size = 2048,
          .intermediate_size = intermediate,
          .num_attention_heads = 32,
          .num_key_value_heads = 8,
          .head_dim = 64};
}

constexpr std::int64_t narrow = 8192, wide = 16384;

/// The bytes of a class that a layer holds for the feed-forward block: those that grow with its width.
template <class T>
std::size_t mlp_bytes(LayerMode mode, MemoryClass memory_class) {
  const auto of_width = [&](std::int64_t intermediate) {
    const auto forecast = Ledger::create(Ledger::Mode::count);
    const DecoderLayer<Exec, T> layer(config_with(intermediate), shape, {.mode = mode}, *forecast);
    return forecast->peak(memory_class);
  };
  return of_width(wide) - of_width(narrow);
}

/// The bytes of so many arrays of that width, as a ledger books them.
template <class T>
std::size_t array_bytes(const std::vector<const char*>& names) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  std::vector<MemoryBlock<Exec::memory_space>> arrays;
  for (const char* name : names)
    arrays.push_back(ledger->allocate<Exec::memory_space>(
        MemoryClass::activations, name, static_cast<std::size_t>(shape.rows() * (wide - narrow)) * sizeof(T)));
  return ledger->peak(MemoryClass::activations);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layer_memory)

// Operation by operation, silu saves gate, the product saves silu(gate) and up, and the projection after it
// saves the product.
BOOST_AUTO_TEST_CASE_TEMPLATE(training_saves_of_the_mlp_only_gate_and_up, T, Scalars) {
  const std::size_t saved = mlp_bytes<T>(LayerMode::training, MemoryClass::activations);
  const std::size_t unfused = array_bytes<T>({"gate", "up", "silu(gate)", "product"});
  BOOST_TEST(saved == array_bytes<T>({"gate", "up"}));
  BOOST_TEST(static_cast<double>(saved) <= 0.6 * static_cast<double>(unfused));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_recomputed_product_has_no_array_of_its_own, T, Scalars) {
  BOOST_TEST(mlp_bytes<T>(LayerMode::training, MemoryClass::workspace) ==
             array_bytes<T>({"dproduct", "dgate", "dup"}));
}

// Operation by operation, silu(gate), up and their product are in memory at once.
BOOST_AUTO_TEST_CASE_TEMPLATE(in_inference_the_product_takes_the_place_of_gate, T, Scalars) {
  BOOST_TEST(mlp_bytes<T>(LayerMode::inference, MemoryClass::activations) == array_bytes<T>({"gate", "up"}));
  BOOST_TEST(mlp_bytes<T>(LayerMode::inference, MemoryClass::workspace) == 0u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
