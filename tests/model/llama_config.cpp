// SPDX-License-Identifier: MIT
#include "kformer/model/llama_config.hpp"

#include "kformer/core/error.hpp"
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
  fault([](LlamaConfig& c) { c.rms_norm_eps = -1; }, "rms_norm_eps must not be negative, got -1.000000");
  fault([](LlamaConfig& c) { c.sliding_window = -2; }, "sliding_window must not be negative, got -2");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
