// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>

#include "error_text.hpp"
#include "kformer/core/enum_names.hpp"
#include "kformer/io/model_table.hpp"
#include "scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

constexpr const char* sizes =
    R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
       "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 512)";

struct Fixture {
  ScratchDirectory directory;

  LanguageModelTable read_text(const std::string& text) {
    put_contents(directory / "config.json", text);
    return read_model_config(directory / "config.json");
  }
  LanguageModelTable read(const std::string& keys) { return read_text("{" + std::string(sizes) + keys + "}"); }

  /// What is wrong, without the name of the file.
  std::string fault_text(const std::string& text) {
    const std::string start = (directory / "config.json").string() + ": error: ";
    std::string fault = file_error([&] { read_text(text); });
    for (auto place = fault.find(start); place != fault.npos; place = fault.find(start))
      fault.erase(place, start.size());
    return fault;
  }
  std::string fault(const std::string& keys) { return fault_text("{" + std::string(sizes) + keys + "}"); }
};

const std::string llama = R"(, "model_type": "llama")";

}  // namespace

BOOST_FIXTURE_TEST_SUITE(model_config, Fixture)

BOOST_AUTO_TEST_CASE(llama_3_1_is_read) {
  const auto model = read_text(R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 131072,
    "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 128256})");
  BOOST_TEST((model.model_type == ModelType::llama));
  BOOST_TEST(model.config == directory / "config.json");
  BOOST_TEST(model.head_dim == 128);
  BOOST_TEST(model.rope.theta == 500000.0);
  BOOST_TEST((model.rope.scaling == RopeScaling{.rope_type = RopeType::llama3}));
  BOOST_TEST(model.known.contains("rope_theta"));
  BOOST_TEST(model.num_hidden_layers == 32);
  BOOST_TEST(model.vocab_size == 128256);
  BOOST_TEST(model.max_position_embeddings == 131072);
  BOOST_TEST((!model.tie_word_embeddings && !model.qk_norm));
  BOOST_TEST(model.bos_token_ids == (std::vector<std::int64_t>{128000}));
  BOOST_TEST(model.eos_token_ids == (std::vector<std::int64_t>{128001, 128008, 128009}));
}

BOOST_AUTO_TEST_CASE(families_have_defaults) {
  const auto small = read(llama + R"(, "tie_word_embeddings": true, "head_dim": null, "rope_scaling": null,
    "bos_token_id": null, "rope_interleaved": false, "sliding_window": null)");
  BOOST_TEST(small.head_dim == 16);
  BOOST_TEST(small.rope.theta == 10000.0);
  BOOST_TEST(small.rms_norm_eps == 1e-6);
  BOOST_TEST(small.tie_word_embeddings);
  BOOST_TEST((small.bos_token_ids.empty() && small.eos_token_ids.empty()));
  const auto mistral = read(R"(, "architectures": ["MistralForCausalLM"])");
  BOOST_TEST((mistral.model_type == ModelType::mistral));
  BOOST_TEST(mistral.sliding_window == 4096);
  BOOST_TEST(read(R"(, "model_type": "mistral", "sliding_window": null)").sliding_window == 0);
  const auto qwen2 = read(R"(, "model_type": "qwen2", "sliding_window": 256, "max_window_layers": 1)");
  BOOST_TEST(qwen2.attention_bias);
  BOOST_TEST((!qwen2.qk_norm && qwen2.sliding_window == 0));
  const auto nulls = read(R"(, "model_type": "qwen2", "sliding_window": 256, "max_window_layers": 0,
    "use_sliding_window": null, "attention_bias": null)");
  BOOST_TEST(nulls.attention_bias);
  BOOST_TEST(nulls.sliding_window == 0);
  const auto qwen3 = read(R"(, "model_type": "qwen3", "head_dim": 32, "attention_bias": false,
    "use_sliding_window": false, "sliding_window": null)");
  BOOST_TEST((qwen3.qk_norm && !qwen3.attention_bias));
  BOOST_TEST(qwen3.head_dim == 32);
  BOOST_TEST(read(R"(, "model_type": "qwen3")").head_dim == 128);
  const auto kv_heads = [&](const std::string& family, const std::string& more = "") {
    return read_text(R"({"hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 2,
      "num_attention_heads": 64, "vocab_size": 1000, "max_position_embeddings": 512, "model_type": ")" +
                     family + "\"" + more + "}")
        .num_key_value_heads;
  };
  BOOST_TEST(kv_heads("llama") == 64);
  BOOST_TEST(kv_heads("mistral") == 8);
  BOOST_TEST(kv_heads("qwen2") == 32);
  BOOST_TEST(kv_heads("qwen3") == 32);
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3"})
    BOOST_TEST(kv_heads(family, R"(, "num_key_value_heads": null)") == 64, family);
}

BOOST_AUTO_TEST_CASE(windows_are_of_all_layers_or_none) {
  const std::string qwen = R"(, "model_type": "qwen2", "use_sliding_window": true, "sliding_window": 256)";
  BOOST_TEST(read(qwen + R"(, "max_window_layers": 0)").sliding_window == 256);
  BOOST_TEST(read(qwen + R"(, "max_window_layers": 2)").sliding_window == 0);
  BOOST_TEST(fault(qwen + R"(, "max_window_layers": 1)") ==
             "'max_window_layers' = 1 of 2 layers: windows on only some layers are not supported");
  // Without the key, layers have it from number 28 on.
  BOOST_TEST(read(qwen).sliding_window == 0);
  BOOST_TEST(fault(qwen + R"(, "num_hidden_layers": 30)") ==
             "'max_window_layers' = 28 of 30 layers: windows on only some layers are not supported");
  const std::string used = R"(, "model_type": "qwen3", "use_sliding_window": true, "max_window_layers": 0)";
  BOOST_TEST(read(used).sliding_window == 4096);
  BOOST_TEST(read(used + R"(, "sliding_window": null)").sliding_window == 0);
  const auto types = [&](const std::string& list) { return qwen + R"(, "layer_types": [)" + list + "]"; };
  BOOST_TEST(read(types(R"("full_attention", "full_attention")")).sliding_window == 0);
  BOOST_TEST(read(types(R"("sliding_attention", "sliding_attention")")).sliding_window == 256);
  BOOST_TEST(fault(types(R"("sliding_attention", "full_attention")")).starts_with("'layer_types' must be"));
}

BOOST_AUTO_TEST_CASE(newer_files_have_rope_parameters) {
  const auto model = read(llama + R"(, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"})");
  BOOST_TEST(model.rope.theta == 5e5);
  BOOST_TEST((model.rope.scaling == RopeScaling{}));
  const auto scaled =
      read(llama + R"(, "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", "factor": 32.0,
    "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192})");
  BOOST_TEST((scaled.rope.scaling == RopeScaling{.rope_type = RopeType::llama3, .factor = 32}));
  const std::string theta = R"(, "rope_theta": 777, "rope_parameters": {"rope_theta": 5e5})";
  BOOST_TEST(read(llama + theta).rope.theta == 5e5);
  BOOST_TEST((read(llama + theta).rope.scaling == RopeScaling{}));
  // Of both tables the older one counts.
  const auto both = read(llama + theta + R"(, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
    "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192})");
  BOOST_TEST(both.rope.theta == 777);
  BOOST_TEST((both.rope.scaling == scaled.rope.scaling));
  BOOST_TEST(read(llama + theta + R"(, "rope_scaling": {})").rope.theta == 5e5);
  BOOST_TEST(
      fault(llama + R"(, "rope_parameters": {"rope_type": "yarn", "factor": 4})")
          .starts_with("'rope_scaling.rope_type' must be one of \"none\", \"llama3\", got string \"yarn\""));
  BOOST_TEST(fault(llama + R"(, "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5})") ==
             "'partial_rotary_factor' must be 1, got 0.5: RoPE on part of a head is not supported");
  BOOST_TEST(fault(llama + R"(, "rope_parameters": {"full_attention": {"rope_type": "default"}})")
                 .starts_with("'rope_parameters' must be one table for all layers, got "));
}

BOOST_AUTO_TEST_CASE(other_models_are_refused) {
  BOOST_TEST(fault(R"(, "model_type": "gemma2")") ==
             "'model_type' must be one of \"llama\", \"mistral\", \"qwen2\", \"qwen3\", got string \"gemma2\"");
  BOOST_TEST(fault("") == "missing key 'model_type': one of llama, mistral, qwen2, qwen3");
  BOOST_TEST(fault(R"(, "architectures": ["LlamaForSequenceClassification"], "model_type": "llama")") ==
             "'architectures' must be one of LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, "
             "Qwen3ForCausalLM, got \"LlamaForSequenceClassification\"");
  BOOST_TEST(fault(R"(, "architectures": ["Qwen2ForCausalLM"], "model_type": "llama")") ==
             "'architectures' names \"Qwen2ForCausalLM\", but 'model_type' is \"llama\"");
  BOOST_TEST(fault(llama + R"(, "hidden_act": "gelu")") ==
             "'hidden_act' must be \"silu\", got string \"gelu\"");
  BOOST_TEST(fault(llama + R"(, "mlp_bias": true)") ==
             "'mlp_bias' must be false, got true: biases of the MLP are not supported");
  BOOST_TEST(fault(llama + R"(, "partial_rotary_factor": 0.5)") ==
             "'partial_rotary_factor' must be 1, got 0.5: RoPE on part of a head is not supported");
  BOOST_TEST(fault(llama + R"(, "rope_interleaved": true)").starts_with("'rope_interleaved' must be false"));
  BOOST_TEST(
      fault(llama + R"(, "quantization_config": {"bits": 4})")
          .starts_with("'quantization_config' must be null or that of bitsandbytes, got {\"bits\":4}: "));
  BOOST_TEST(fault(llama +
                   R"(, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true,)" +
                   R"( "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": true})") ==
             "'quantization_config.bnb_4bit_quant_type' must be \"nf4\", got \"fp4\": of bitsandbytes, NF4 "
             "with double "
             "quantisation is supported");
  BOOST_TEST(fault(llama + R"(, "attention_bias": true)")
                 .starts_with("'attention_bias' = true needs model_type = \"qwen2\", got \"llama\""));
  BOOST_TEST(
      fault(R"(, "model_type": "qwen3", "attention_bias": true)").starts_with("'attention_bias' = true"));
}

BOOST_AUTO_TEST_CASE(other_rope_scalings_are_refused) {
  for (const std::string type : {"linear", "dynamic", "yarn", "longrope"})
    for (const std::string key : {"type", "rope_type"})
      BOOST_TEST(fault(llama + ", \"rope_scaling\": {\"" + key + "\": \"" + type + "\", \"factor\": 2.0}") ==
                 "'rope_scaling.rope_type' must be one of \"none\", \"llama3\", got string \"" + type + "\"");
  BOOST_TEST(fault(llama + R"(, "rope_scaling": {"factor": 2.0})") ==
             "'rope_scaling.rope_type' is missing, expected \"default\" or \"llama3\"");
  BOOST_TEST(fault(llama + R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
    "high_freq_factor": 4})") ==
             "'rope_scaling.original_max_position_embeddings' is missing, \"llama3\" needs it");
}

BOOST_AUTO_TEST_CASE(all_faults_are_reported_together) {
  BOOST_TEST(fault_text(R"({"model_type": "llama", "hidden_size": 0, "num_attention_heads": "8",
    "intermediate_size": 1e3, "num_hidden_layers": 1000000, "vocab_size": 10, "eos_token_id": -1})") ==
             "'hidden_size' must be an integer in [1, 16777216], got integer 0\n"
             "'num_attention_heads' must be an integer in [1, 65536], got string \"8\"\n"
             "'intermediate_size' must be an integer in [1, 16777216], got float 1000.0\n"
             "'num_hidden_layers' must be an integer in [1, 4096], got integer 1000000\n"
             "missing key 'max_position_embeddings' at the top level: an integer in [1, 1073741824]\n"
             "'eos_token_id' must be an integer in [0, 1073741824] or an array of them, got integer -1");
  BOOST_TEST(fault_text("{}").find("missing key 'hidden_size' at the top level") != std::string::npos);
  BOOST_TEST(fault(llama + R"(, "bos_token_id": 1000)") ==
             "'bos_token_id' = 1000 is not below vocab_size = 1000");
  BOOST_TEST(fault(llama + R"(, "head_dim": 7)") ==
             "'head_dim' = 7 is odd, but RoPE rotates pairs of features");
  BOOST_TEST(fault(llama + R"(, "head_dim": 4194306)") ==
             "'head_dim' = 4194306 gives the 4 query heads more than 16777216 features together");
  BOOST_TEST(read(llama + R"(, "head_dim": 4194304)").head_dim == 4194304);
  BOOST_TEST(fault(llama + R"(, "rms_norm_eps": 1e999)") ==
             "the file has a number beyond the range of doubles");
}

BOOST_AUTO_TEST_CASE(files_that_are_no_configuration_are_refused) {
  BOOST_TEST(fault_text("[]") == "a model configuration is a JSON object");
  BOOST_TEST(fault_text("").find("the file is not JSON") != std::string::npos);
  BOOST_TEST(fault_text(R"({"hidden_size": )" + std::string(500000, '[')) == "the file is nested too deeply");
  BOOST_TEST(file_error([&] { read_model_config(directory / "none.json"); }) ==
             "cannot read '" + (directory / "none.json").string() + "': No such file or directory");
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read_back) {
  for (const std::string& keys :
       {llama + R"(, "eos_token_id": [1, 2], "tie_word_embeddings": true, "rms_norm_eps": 1e-5,
         "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
         "original_max_position_embeddings": 8192})",
        std::string(R"(, "model_type": "mistral", "sliding_window": null, "bos_token_id": 1)"),
        std::string(R"(, "model_type": "mistral", "sliding_window": 100)"),
        std::string(R"(, "model_type": "qwen2", "use_sliding_window": true, "sliding_window": 9,
          "max_window_layers": 0)"),
        std::string(R"(, "model_type": "qwen3", "rope_theta": 1000000)")}) {
    auto model = read(keys);
    auto again = read_text(model_config_json(model));
    BOOST_TEST((again == model), keys);
  }
}

BOOST_AUTO_TEST_CASE(a_llama_with_a_window_is_written_as_a_mistral) {
  auto model = read(llama + R"(, "sliding_window": 100)");
  const std::string text = model_config_json(model);
  BOOST_TEST(text.find("MistralForCausalLM") != text.npos);
  const auto again = read_text(text);
  model.model_type = ModelType::mistral;
  BOOST_TEST((again == model));
}

BOOST_AUTO_TEST_CASE(what_is_written_names_the_class_of_other_programs) {
  for (const auto& [type, name] : {std::pair{ModelType::llama, "LlamaForCausalLM"},
                                   {ModelType::mistral, "MistralForCausalLM"},
                                   {ModelType::qwen2, "Qwen2ForCausalLM"},
                                   {ModelType::qwen3, "Qwen3ForCausalLM"}}) {
    LanguageModelTable model;
    model.model_type = type;
    BOOST_TEST(model_config_json(model).find(std::string("\"architectures\": [\n    \"") + name + "\"\n  ]") !=
                   std::string::npos,
               name);
  }
}

BOOST_AUTO_TEST_SUITE_END()
