// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <numbers>

#include "error_text.hpp"
#include "gguf_bytes.hpp"
#include "kformer/io/checkpoint.hpp"
#include "scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

struct Fixture {
  ScratchDirectory directory;

  Checkpoint open(const GgufImage& image) {
    put_contents(directory / "model.gguf", image.bytes());
    return Checkpoint::open(directory / "model.gguf");
  }
  /// What is wrong, without the name of the file.
  std::string fault(const GgufImage& image) {
    std::string text = file_error([&] {
      const auto checkpoint = open(image);
      checkpoint.check_against(checkpoint.model());
    });
    const std::string name = (directory / "model.gguf").string();
    for (const std::string& start : {"'" + name + "': ", name + ": error: "})
      if (text.starts_with(start)) return text.substr(start.size());
    return text;
  }
};

GgufImage with(const std::string& key, const std::string& value, const std::string& architecture = "llama") {
  GgufImage image = small_gguf_model(architecture);
  image.set(key, value);
  return image;
}

GgufImage with_tensor(GgufTensorBytes tensor, const std::string& architecture = "llama") {
  GgufImage image = small_gguf_model(architecture);
  image.tensors.push_back(std::move(tensor));
  return image;
}

/// The first number of each row of a float matrix whose elements count up from 0, in rows.
std::vector<int> rows_of(const CheckpointTensor& tensor) {
  const std::size_t row_bytes = tensor.bytes.size() / tensor.shape[0];
  std::vector<int> rows;
  for (std::size_t row = 0; row < tensor.shape[0]; ++row) {
    float first = 0;
    std::memcpy(&first, tensor.bytes.data() + row * row_bytes, sizeof(first));
    rows.push_back(static_cast<int>(first) / 32);
  }
  return rows;
}

/// The factors of Llama 3.1 and 3.2, written from their definition by wavelengths.
std::string llama3_factors(float factor, int head_dim, double theta) {
  std::string bytes;
  for (int i = 0; i < head_dim; i += 2) {
    const double wavelength = 2 * std::numbers::pi * std::pow(theta, double(i) / head_dim);
    const double smooth = (8192 / wavelength - 1) / 3;
    double value = 1 / ((1 - smooth) / factor + smooth);
    if (wavelength < 2048) value = 1;
    if (wavelength > 8192) value = factor;
    bytes += raw(static_cast<float>(value));
  }
  return bytes;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(checkpoint_gguf, Fixture)

BOOST_AUTO_TEST_CASE(a_model_is_read_under_its_published_names) {
  const auto checkpoint = open(small_gguf_model());
  checkpoint.check_against(checkpoint.model());
  const auto& model = checkpoint.model();
  BOOST_TEST((checkpoint.format() == CheckpointFormat::gguf && checkpoint.gguf() != nullptr));
  BOOST_TEST((model.model_type == ModelType::llama && model.config.empty()));
  BOOST_TEST(model.hidden_size == 32);
  BOOST_TEST(model.num_attention_heads == 2);
  BOOST_TEST(model.num_key_value_heads == 1);
  BOOST_TEST(model.head_dim == 8);
  BOOST_TEST(model.intermediate_size == 48);
  BOOST_TEST(model.rms_norm_eps == 1e-5);
  BOOST_TEST(model.rope.theta == 10000.0);
  BOOST_TEST(model.num_hidden_layers == 1);
  BOOST_TEST(model.vocab_size == 6);
  BOOST_TEST(model.max_position_embeddings == 128);
  BOOST_TEST(model.tie_word_embeddings);
  BOOST_TEST(model.bos_token_ids == (std::vector<std::int64_t>{1}));
  BOOST_TEST(model.eos_token_ids == (std::vector<std::int64_t>{2}));
  BOOST_TEST(checkpoint.at("model.layers.0.mlp.down_proj.weight").shape == (std::vector<std::size_t>{32, 48}));
  BOOST_TEST(checkpoint.at("model.layers.0.post_attention_layernorm.weight").shape ==
             (std::vector<std::size_t>{32}));
}

BOOST_AUTO_TEST_CASE(rows_of_llama_are_put_into_published_order) {
  const auto checkpoint = open(small_gguf_model());
  BOOST_TEST(rows_of(checkpoint.at("model.layers.0.self_attn.q_proj.weight")) ==
             (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}));
  BOOST_TEST(rows_of(checkpoint.at("model.layers.0.self_attn.k_proj.weight")) ==
             (std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7}));
  BOOST_TEST(rows_of(checkpoint.at("model.layers.0.self_attn.v_proj.weight")) ==
             (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  // The copy is what is tested. NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const Checkpoint copy = checkpoint;
  BOOST_TEST(copy.at("model.layers.0.self_attn.q_proj.weight").bytes.data() ==
             checkpoint.at("model.layers.0.self_attn.q_proj.weight").bytes.data());
}

BOOST_AUTO_TEST_CASE(quantised_rows_move_whole) {
  GgufImage image = small_gguf_model();
  std::string blocks;
  for (char row = 0; row < 16; ++row) blocks += std::string(34, row);
  image.tensors[3] = {"blk.0.attn_q.weight", {32, 16}, 8, blocks};
  const auto checkpoint = open(image);
  checkpoint.check_against(checkpoint.model());
  const auto& q = checkpoint.at("model.layers.0.self_attn.q_proj.weight");
  BOOST_TEST(to_string(q.type) == "Q8_0");
  for (std::size_t byte = 0; byte < 34; ++byte) BOOST_TEST((q.bytes[5 * 34 + byte] == std::byte{3}));
}

BOOST_AUTO_TEST_CASE(qwen_has_its_rows_in_order_already) {
  GgufImage qwen2 = small_gguf_model("qwen2");
  qwen2.tensors.push_back({"blk.0.attn_q.bias", {16}, 0, floats(16)});
  qwen2.tensors.push_back({"blk.0.attn_k.bias", {8}, 0, floats(8)});
  qwen2.tensors.push_back({"blk.0.attn_v.bias", {8}, 0, floats(8)});
  qwen2.tensors.push_back({"output.weight", {32, 6}, 0, floats(192)});
  const auto checkpoint = open(qwen2);
  checkpoint.check_against(checkpoint.model());
  BOOST_TEST(checkpoint.model().attention_bias);
  BOOST_TEST(!checkpoint.model().tie_word_embeddings);
  BOOST_TEST(rows_of(checkpoint.at("model.layers.0.self_attn.q_proj.weight"))[1] == 1);
  GgufImage qwen3 = small_gguf_model("qwen3");
  qwen3.tensors.push_back({"blk.0.attn_q_norm.weight", {8}, 0, floats(8)});
  BOOST_TEST(
      fault(qwen3) ==
      "the tensors do not match the model:\n  model.layers.0.self_attn.k_norm.weight is missing, expected [8]");
  qwen3.tensors.push_back({"blk.0.attn_k_norm.weight", {8}, 0, floats(8)});
  BOOST_TEST(fault(qwen3) == "no error");
  BOOST_TEST(open(qwen3).model().qk_norm);
}

BOOST_AUTO_TEST_CASE(what_metadata_may_leave_out_or_add) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    GgufImage image = small_gguf_model(architecture);
    std::erase_if(image.metadata, [&](const auto& entry) {
      for (const char* name : {".attention.head_count_kv", ".attention.key_length"})
        if (entry.first == architecture + name) return true;
      return false;
    });
    image.set("tokenizer.ggml.eot_token_id", u32_value(4));
    image.set("tokenizer.ggml.eom_token_id", u32_value(2));
    image.set(architecture + ".expert_count", u32_value(0));
    image.set(architecture + ".rope.scaling.type", text_value("none"));
    const auto model = open(image).model();
    BOOST_TEST(model.num_key_value_heads == 2);
    BOOST_TEST(model.head_dim == 16);
    BOOST_TEST(model.eos_token_ids == (std::vector<std::int64_t>{2, 4}));
    BOOST_TEST(model.sliding_window == 0);
    image.set(architecture + ".attention.sliding_window", u32_value(24));
    BOOST_TEST(open(image).model().sliding_window == 24, architecture);
  }
}

BOOST_AUTO_TEST_CASE(scaled_frequencies_are_recognised) {
  for (const float factor : {8.F, 32.F}) {
    GgufImage image = with("llama.rope.freq_base", f32_value(500000));
    image.tensors.push_back({"rope_freqs.weight", {4}, 0, llama3_factors(factor, 8, 500000)});
    const auto scaling = open(image).model().rope.scaling;
    BOOST_TEST((scaling == RopeScaling{.rope_type = RopeType::llama3, .factor = factor}));
    BOOST_TEST(open(image).find("rope_freqs.weight") == nullptr);
  }
  const auto ones = raw(1.F) + raw(1.F) + raw(1.F) + raw(1.F);
  BOOST_TEST((open(with_tensor({"rope_freqs.weight", {4}, 0, ones})).model().rope.scaling == RopeScaling{}));
  for (const std::string& wrong : {llama3_factors(16, 8, 10000), llama3_factors(8, 10, 10000), floats(4),
                                   raw(NAN) + raw(NAN) + raw(NAN) + raw(NAN), std::string()})
    BOOST_TEST(fault(with_tensor({"rope_freqs.weight", {wrong.size() / 4}, 0, wrong}))
                   .starts_with("the factors of tensor 'rope_freqs.weight' are not those of the llama3 rule"));
  BOOST_TEST(fault(with_tensor({"rope_freqs.weight", {4}, 1, "12345678"})) ==
             "the factors of tensor 'rope_freqs.weight' are of type F16, expected F32");
}

BOOST_AUTO_TEST_CASE(other_models_are_refused) {
  BOOST_TEST(fault(with("general.architecture", text_value("gemma2"))) ==
             "general.architecture is \"gemma2\", expected llama, qwen2 or qwen3");
  BOOST_TEST(fault(with("general.architecture", u32_value(1))) ==
             "metadata 'general.architecture' has another type, expected a string");
  BOOST_TEST(fault(with("llama.expert_count", u32_value(8))) ==
             "metadata 'llama.expert_count' is 8, only 0 is supported");
  BOOST_TEST(fault(with("llama.rope.scaling.type", text_value("yarn"))) ==
             "metadata 'llama.rope.scaling.type' is \"yarn\", only \"none\" is supported");
  BOOST_TEST(fault(with("llama.rope.scaling.factor", f32_value(4))) ==
             "metadata 'llama.rope.scaling.factor' is 4.0, only 1.0 is supported");
  BOOST_TEST(fault(with("llama.rope.dimension_count", u32_value(4))) ==
             "metadata 'llama.rope.dimension_count' is 4, only 8 is supported");
  BOOST_TEST(fault(with("llama.attention.value_length", u32_value(4))) ==
             "metadata 'llama.attention.value_length' is 4, only 8 is supported");
  BOOST_TEST(fault(with("llama.logit_scale", f32_value(4))) == "metadata 'llama.logit_scale' is not supported");
  BOOST_TEST(
      fault(with("llama.feed_forward_length", array_value(4, 2, raw(48) + raw(32)))) ==
      "metadata 'llama.feed_forward_length' has different values for different layers, which is not supported");
  BOOST_TEST(fault(with("llama.feed_forward_length", array_value(4, 2, raw(48) + raw(48)))) == "no error");
  BOOST_TEST(
      fault(with("split.count", u32_value(2))).ends_with("is one part of a split file; merge the parts first"));
  BOOST_TEST(fault(with_tensor({"blk.0.ffn_gate_inp.weight", {1}, 0, "1234"})) ==
             "tensor 'blk.0.ffn_gate_inp.weight' belongs to no supported model");
  BOOST_TEST(
      fault(with_tensor({"blk.00.attn_q.weight", {1}, 0, "1234"})).ends_with("belongs to no supported model"));
  BOOST_TEST(fault(with_tensor({"blk.0.attn_output.bias", {32}, 0, floats(32)})).find("would ignore it") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(impossible_sizes_are_refused) {
  GgufImage image = small_gguf_model();
  std::erase_if(image.metadata, [](const auto& entry) { return entry.first == "llama.block_count"; });
  BOOST_TEST(fault(image) == "metadata 'llama.block_count' is missing");
  BOOST_TEST(
      fault(with("llama.block_count", u32_value(4000000000))).starts_with("'num_hidden_layers' must be"));
  BOOST_TEST(
      fault(with("llama.attention.head_count", u32_value(0))).starts_with("'num_attention_heads' must be"));
  BOOST_TEST(
      fault(with("llama.attention.layer_norm_rms_epsilon", f32_value(NAN))).starts_with("'rms_norm_eps' must"));
  BOOST_TEST(fault(with("llama.attention.head_count", u32_value(16))) ==
             "tensor 'blk.0.attn_q.weight' does not have a whole number of row pairs for each of 16 heads");
  BOOST_TEST(fault(with("tokenizer.ggml.eos_token_id", u32_value(6))) ==
             "'eos_token_id' = 6 is not below vocab_size = 6");
  GgufImage headless = small_gguf_model();
  headless.tensors.erase(headless.tensors.begin());
  BOOST_TEST(fault(headless) == "tensor 'token_embd.weight' is missing or a scalar");
  GgufImage scalar = small_gguf_model();
  scalar.tensors[3] = {"blk.0.attn_q.weight", {}, 0, "1234"};
  BOOST_TEST(fault(scalar).find("a whole number of row pairs") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
