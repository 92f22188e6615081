// SPDX-License-Identifier: MIT
// Adapters in the files of llama.cpp.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>

#include "error_text.hpp"
#include "gguf_bytes.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/adapter.hpp"
#include "scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

/// The extents of `small_gguf_model`, with two layers.
LlamaConfig small_model() {
  return {.hidden_size = 32,
          .intermediate_size = 48,
          .num_attention_heads = 2,
          .num_key_value_heads = 1,
          .head_dim = 8,
          .num_hidden_layers = 2,
          .vocab_size = 6};
}

/// Other numbers for each tensor, exact in 32 bits.
std::vector<double> numbers(const LlamaConfig& model, const LoraConfig& lora, const std::string& name) {
  const auto shape = adapter_tensor_shapes(model, lora).at(name);
  std::vector<double> all(shape[0] * shape[1]);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] =
        static_cast<double>((i * 37 + name.size() * 101 + static_cast<std::size_t>(name[13])) % 509) / 64 - 4;
  return all;
}

std::vector<float> floats_of(const CheckpointTensor& tensor) {
  std::vector<float> all(tensor.bytes.size() / sizeof(float));
  std::memcpy(all.data(), tensor.bytes.data(), tensor.bytes.size());
  return all;
}

struct Fixture {
  ScratchDirectory directory;
  std::filesystem::path path = directory / "adapter.gguf";
  LlamaConfig model = small_model();

  void write(const LoraConfig& lora) const {
    write_gguf_adapter(path, model, lora, [&](const std::string& name) { return numbers(model, lora, name); });
  }

  /// What is wrong, without the name of the file.
  std::string fault(const GgufImage& image) const {
    put_contents(path, image.bytes());
    const std::string text = file_error([&] { AdapterCheckpoint::open(path, model); });
    const std::string start = "'" + path.string() + "': ";
    return text.starts_with(start) ? text.substr(start.size()) : text;
  }
};

/// An adapter of rank 2 of the outputs of attention, and something else.
GgufImage image_with(const std::string& key = "adapter.lora.alpha", const std::string& value = f32_value(4)) {
  GgufImage image;
  image.metadata = {{"general.architecture", text_value("llama")},
                    {"general.type", text_value("adapter")},
                    {"adapter.type", text_value("lora")},
                    {"adapter.lora.alpha", f32_value(4)}};
  image.set(key, value);
  for (const char* layer : {"blk.0.", "blk.1."}) {
    image.tensors.push_back({std::string(layer) + "attn_output.weight.lora_a", {16, 2}, 0, floats(32)});
    image.tensors.push_back({std::string(layer) + "attn_output.weight.lora_b", {2, 32}, 0, floats(64)});
  }
  return image;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(gguf_adapter, Fixture)

// One factor for all: what is read is what was written.
BOOST_AUTO_TEST_CASE(an_adapter_is_written_and_read) {
  LoraConfig lora = LoraConfig::all(4, 8);
  lora[Projection::k].rank = 0;
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    model.attention_bias = family == std::string("qwen2");
    model.qk_norm = family == std::string("qwen3");
    write(lora);
    const auto read = AdapterCheckpoint::open(path, model);
    LoraConfig expected = lora;
    expected[Projection::k] = {};
    BOOST_TEST((read.lora() == expected));
    // Only llama has heads of interleaved pairs.
    const std::string q = "model.layers.0.self_attn.q_proj.lora_B.weight";
    const auto stored = floats_of(*GgufFile::open(path).find("blk.0.attn_q.weight.lora_b"));
    BOOST_TEST((std::vector<double>(stored.begin(), stored.end()) == numbers(model, lora, q)) ==
               (family != std::string("llama")));
    for (const auto& [name, shape] : adapter_tensor_shapes(model, lora)) {
      BOOST_TEST(read.values(name) == numbers(model, lora, name), name << " of " << family);
      BOOST_TEST((read.at(name).shape == shape));
    }
    BOOST_TEST(file_error([&] { read.at("model.norm.weight"); }) ==
               "'" + path.string() + "' has no matrix 'model.norm.weight'");
  }
}

// As convert_lora_to_gguf.py writes it: names, metadata, and the rows of B of q and k.
BOOST_AUTO_TEST_CASE(the_file_is_laid_out_for_llama_cpp) {
  const LoraConfig lora = LoraConfig::all(3, 6);
  write(lora);
  const GgufFile file = GgufFile::open(path);
  BOOST_TEST(file.find_string("general.type").value() == "adapter");
  BOOST_TEST(file.find_string("general.architecture").value() == "llama");
  BOOST_TEST(file.find_string("adapter.type").value() == "lora");
  BOOST_TEST(file.find_number("adapter.lora.alpha").value() == 6);
  BOOST_TEST(file.names().size() == 2u * 2 * 7);
  for (const auto& [module, published, heads] : {std::tuple("attn_q", "self_attn.q_proj", 2),
                                                 {"attn_k", "self_attn.k_proj", 1},
                                                 {"attn_v", "self_attn.v_proj", 0},
                                                 {"attn_output", "self_attn.o_proj", 0},
                                                 {"ffn_gate", "mlp.gate_proj", 0},
                                                 {"ffn_up", "mlp.up_proj", 0},
                                                 {"ffn_down", "mlp.down_proj", 0}})
    for (const std::string layer : {"0", "1"}) {
      const std::string name = "model.layers." + layer + "." + published;
      const CheckpointTensor* a = file.find("blk." + layer + "." + module + ".weight.lora_a");
      const CheckpointTensor* b = file.find("blk." + layer + "." + module + ".weight.lora_b");
      BOOST_REQUIRE((a != nullptr && b != nullptr));
      BOOST_TEST((a->shape == adapter_tensor_shapes(model, lora).at(name + ".lora_A.weight")));
      BOOST_TEST((b->shape == adapter_tensor_shapes(model, lora).at(name + ".lora_B.weight")));
      const auto expected_a = numbers(model, lora, name + ".lora_A.weight");
      const auto found_a = floats_of(*a), found = floats_of(*b);
      BOOST_TEST(std::vector<double>(found_a.begin(), found_a.end()) == expected_a);
      const auto expected = numbers(model, lora, name + ".lora_B.weight");
      for (std::size_t row = 0; row < b->shape[0]; ++row) {
        // Feature i of a head of 8 is beside feature i + 4.
        const std::size_t feature = row % 8;
        const std::size_t from = heads == 0 ? row : row - feature + feature / 2 + (feature % 2 == 1 ? 4 : 0);
        for (std::size_t k = 0; k < 3; ++k) BOOST_TEST(found[row * 3 + k] == expected[from * 3 + k], name);
      }
    }
}

// The format has one alpha: s B is what it was.
BOOST_AUTO_TEST_CASE(other_factors_become_part_of_b) {
  LoraConfig lora = LoraConfig::all(4, 8);
  lora.rank_stabilized = true;
  lora[Projection::v] = {.rank = 2, .alpha = 5};
  lora[Projection::down] = {.rank = 16, .alpha = -3};
  write(lora);
  const auto read = AdapterCheckpoint::open(path, model);
  BOOST_TEST(!read.lora().rank_stabilized);
  for (const auto& [name, shape] : adapter_tensor_shapes(model, lora))
    for (std::size_t i = 0; i < lora.targets.size(); ++i) {
      const auto p = static_cast<Projection>(i);
      if (name.find(names_of<Projection>[i]) == name.npos) continue;
      BOOST_TEST(read.lora()[p].rank == lora[p].rank);
      const auto before = numbers(model, lora, name), after = read.values(name);
      const bool is_b = name.find("lora_B") != name.npos;
      const double old_factor = is_b ? lora.scale(p) : 1, factor = is_b ? read.lora().scale(p) : 1;
      for (std::size_t n = 0; n < before.size(); ++n)
        BOOST_TEST(std::abs(factor * after[n] - old_factor * before[n]) <=
                   2e-7 * std::abs(old_factor * before[n]));
    }
  // A factor of 0 must not become the factor 1 that an alpha of 0 means.
  lora = {};
  lora[Projection::v] = {.rank = 2, .alpha = 0};
  write(lora);
  for (const double b :
       AdapterCheckpoint::open(path, model).values("model.layers.0.self_attn.v_proj.lora_B.weight"))
    BOOST_TEST(b == 0);
  BOOST_TEST(error_text([&] { write({}); }) == "kformer::write_gguf_adapter: no projection has an adapter");
  LoraConfig scaled = LoraConfig::all(2, 4);
  scaled.magnitudes = true;
  BOOST_TEST(
      error_text([&] { write(scaled); }) ==
      "kformer::write_gguf_adapter: the adapter has magnitudes (DoRA), which the format does not have; merge "
      "it into the weights");
}

BOOST_AUTO_TEST_CASE(an_alpha_of_0_is_a_factor_of_1) {
  BOOST_TEST(fault(image_with()) == "no error");
  BOOST_TEST(AdapterCheckpoint::open(path, model).lora()[Projection::o].alpha == 4);
  BOOST_TEST(fault(image_with("adapter.lora.alpha", f32_value(0))) == "no error");
  BOOST_TEST(AdapterCheckpoint::open(path, model).lora().scale(Projection::o) == 1);
}

BOOST_AUTO_TEST_CASE(other_files_are_refused) {
  BOOST_TEST(fault(small_gguf_model()) == "metadata 'general.type' is missing, expected \"adapter\"");
  BOOST_TEST(fault(image_with("general.type", text_value("model"))) ==
             "metadata 'general.type' is \"model\", expected \"adapter\"");
  BOOST_TEST(fault(image_with("adapter.type", text_value("ia3"))) ==
             "metadata 'adapter.type' is \"ia3\", expected \"lora\"");
  BOOST_TEST(fault(image_with("general.architecture", text_value("qwen2"))) ==
             "metadata 'general.architecture' is \"qwen2\", expected \"llama\"");
  BOOST_TEST(fault(image_with("adapter.lora.alpha", f32_value(NAN))) ==
             "metadata 'adapter.lora.alpha' must be a number");
  const auto activated_by = [](std::uint64_t count) {
    return image_with("adapter.alora.invocation_tokens", array_value(4, count, std::string(4 * count, '\1')));
  };
  BOOST_TEST(fault(activated_by(0)) == "no error");
  BOOST_TEST(fault(activated_by(2)) ==
             "metadata 'adapter.alora.invocation_tokens' must be empty or missing: adapters of some tokens are "
             "not supported");
  GgufImage image = image_with();
  image.metadata.pop_back();
  BOOST_TEST(fault(image) == "metadata 'adapter.lora.alpha' must be a number");
  image = image_with();
  image.tensors.clear();
  BOOST_TEST(fault(image) == "it has no tensors");
  const auto with = [](GgufTensorBytes tensor) {
    GgufImage changed = image_with();
    changed.tensors.push_back(std::move(tensor));
    return changed;
  };
  for (const char* name : {"token_embd.weight.lora_a", "blk.0.attn_norm.weight.lora_a",
                           "blk.0.attn_q.bias.lora_a", "blk.0.attn_q.weight", "blk.0.attn_q.weight.lora_c"})
    BOOST_TEST(fault(with({name, {32, 2}, 0, floats(64)})) ==
               "tensor '" + std::string(name) + "' is no matrix A or B of a linear map in a layer");
  const std::string a = "tensor 'blk.0.attn_q.weight.lora_a' ", b = "tensor 'blk.0.attn_q.weight.lora_b' ";
  BOOST_TEST(fault(with({"blk.0.attn_q.weight.lora_a", {32, 1, 1}, 0, floats(32)})) == a + "is no matrix");
  BOOST_TEST(fault(with({"blk.0.attn_q.weight.lora_a", {32, 2}, 8, std::string(68, '\0')})) ==
             a + "is of type Q8_0, expected F64, F32, F16 or BF16");
  BOOST_TEST(fault(with({"blk.0.attn_q.weight.lora_a", {32, 0}, 0, ""})) ==
             a + "has rank 0, but others of its kind have 0");
  BOOST_TEST(fault(with({"blk.2.attn_output.weight.lora_b", {3, 32}, 0, floats(96)})) ==
             "tensor 'blk.2.attn_output.weight.lora_b' has rank 3, but others of its kind have 2");
  BOOST_TEST(fault(with({"blk.0.attn_q.weight.lora_b", {2, 6}, 0, floats(12)})) ==
             b + "does not have a whole number of row pairs for each of 2 heads");
}

BOOST_AUTO_TEST_CASE(an_adapter_of_another_model_is_refused) {
  GgufImage image = image_with();
  image.tensors.pop_back();
  BOOST_TEST(fault(image) ==
             "'model.layers.1.self_attn.o_proj.lora_B.weight' is missing; a linear map has an adapter "
             "in every layer or in none");
  model.num_hidden_layers = 1;
  BOOST_TEST(fault(image_with()) ==
             "'model.layers.1.self_attn.o_proj.lora_A.weight' has the extents [2, 16], but the "
             "model has no such map: the adapter belongs to another model");
  model = small_model();
  model.hidden_size = 31;
  BOOST_TEST(fault(image_with()) ==
             "'model.layers.0.self_attn.o_proj.lora_B.weight' has the extents [32, 2], expected "
             "[31, 2]: the adapter belongs to another model");
}

BOOST_AUTO_TEST_SUITE_END()
