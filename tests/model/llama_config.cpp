// SPDX-License-Identifier: MIT
#include "kformer/model/llama_config.hpp"

#include <limits>

#include "kformer/core/error.hpp"
#include "kformer/model/flops.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

LlamaConfig good() {
  return {.hidden_size = 64,
          .intermediate_size = 172,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .head_dim = 8};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(llama_config)

BOOST_AUTO_TEST_CASE(sizes) {
  LlamaConfig c = good();
  BOOST_CHECK_NO_THROW(c.check());
  BOOST_TEST(c.qkv_size() == 128);
  BOOST_TEST(c.attention_size() == 64);
  BOOST_TEST(c.parameter_count() == 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 172 * 64 + 2 * 64);
  c.attention_bias = true;
  BOOST_TEST(c.parameter_count() == 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 172 * 64 + 2 * 64 + 128);
}

BOOST_AUTO_TEST_CASE(faults_are_named) {
  const auto fault = [](auto change, const std::string& text) {
    LlamaConfig c = good();
    change(c);
    check_error<DimensionMismatch>([&] { c.check(); }, "kformer::LlamaConfig: " + text);
  };
  fault([](LlamaConfig& c) { c.hidden_size = 0; }, "hidden_size must be positive, got 0");
  fault([](LlamaConfig& c) { c.intermediate_size = -1; }, "intermediate_size must be positive, got -1");
  fault([](LlamaConfig& c) { c.num_attention_heads = 0; }, "num_attention_heads must be positive, got 0");
  fault([](LlamaConfig& c) { c.num_key_value_heads = 0; }, "num_key_value_heads must be positive, got 0");
  fault([](LlamaConfig& c) { c.head_dim = 0; }, "head_dim must be positive, got 0");
  fault([](LlamaConfig& c) { c.head_dim = 7; }, "head_dim must be even for rotary embedding, got 7");
  fault([](LlamaConfig& c) { c.num_key_value_heads = 3; },
        "num_key_value_heads 3 must divide num_attention_heads 8");
  fault([](LlamaConfig& c) { c.rms_norm_eps = -1; },
        "rms_norm_eps must be finite and not negative, got -1.000000");
  fault([](LlamaConfig& c) { c.rms_norm_eps = std::numeric_limits<double>::infinity(); },
        "rms_norm_eps must be finite and not negative, got inf");
  fault([](LlamaConfig& c) { c.sliding_window = -2; }, "sliding_window must not be negative, got -2");
}

BOOST_AUTO_TEST_CASE(flop_of_a_layer) {
  LlamaConfig c{.hidden_size = 8,
                .intermediate_size = 16,
                .num_attention_heads = 2,
                .num_key_value_heads = 1,
                .head_dim = 4};
  // 12 rows by (16 + 8 + 48) · 8 weights; 2 · 36 pairs by 8 columns, 4 FLOP each.
  constexpr double products = 2 * 12 * 576, attention = 4 * 72 * 8;
  BOOST_TEST(layer_flops(c, {2, 6}, false, false) == products + attention);
  BOOST_TEST(layer_flops(c, {2, 6}, false, true) == products + attention / 2);
  BOOST_TEST(layer_flops(c, {2, 6}, true, false) == 2 * products + 2.5 * attention);
  // The window hides pairs of keys and queries four and more apart, 16 of 36 in the convention.
  c.sliding_window = 2;
  BOOST_TEST(layer_flops(c, {2, 6}, false, true) == products + attention / 2 * 20 / 36);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
