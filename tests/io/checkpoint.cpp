// SPDX-License-Identifier: MIT
#include "kformer/io/checkpoint.hpp"

#include <boost/test/unit_test.hpp>
#include <map>

#include "error_text.hpp"
#include "kformer/io/safetensors.hpp"
#include "scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;
namespace fs = std::filesystem;

constexpr const char* config = R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12,
  "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 10, "max_position_embeddings": 16})";

/// The tensors of the model above, all elements 1, …
struct Fixture {
  ScratchDirectory directory;
  std::vector<float> ones = std::vector<float>(1024, 1.F);
  std::map<std::string, std::vector<std::size_t>> shapes;

  Fixture() {
    put_contents(directory / "config.json", config);
    shapes = model_tensor_shapes(read_model_config(directory / "config.json"));
  }

  /// … or only those in `wanted`.
  template <class Wanted>
  void write(const std::string& file, Wanted&& wanted) {
    SafetensorsWriter writer;
    for (const auto& [name, shape] : shapes)
      if (wanted(name)) writer.add(name, "F32", shape, ones.data());
    writer.write(directory / file);
  }
  void write(const std::string& file) {
    write(file, [](const std::string&) { return true; });
  }

  /// Layer 1 in the second shard, everything else in the first.
  void write_shards(const std::string& index) {
    const auto second = [](const std::string& name) { return name.starts_with("model.layers.1."); };
    write("a.safetensors", [&](const std::string& name) { return !second(name); });
    write("b.safetensors", second);
    put_contents(directory / "model.safetensors.index.json", index);
  }
  std::string index() const {
    std::string map;
    for (const auto& [name, shape] : shapes)
      map += (map.empty() ? "\"" : ",\"") + name + "\":\"" + (name.starts_with("model.layers.1.") ? "b" : "a") +
             ".safetensors\"";
    return R"({"metadata": {"total_size": 1}, "weight_map": {)" + map + "}}";
  }

  std::string fault(const fs::path& path) const {
    return file_error([&] {
      const auto checkpoint = Checkpoint::open(path);
      checkpoint.check_against(checkpoint.model());
    });
  }
  std::string fault() const { return fault(directory.path()); }
  std::string in_folder(const std::string& name) const { return "'" + (directory / name).string() + "'"; }
};

std::string replaced(std::string text, const std::string& old, const std::string& with) {
  return text.replace(text.find(old), old.size(), with);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(checkpoint, Fixture)

BOOST_AUTO_TEST_CASE(a_folder_with_one_file_is_read) {
  write("model.safetensors");
  for (const fs::path& path : {directory.path(), directory / "model.safetensors"}) {
    const auto checkpoint = Checkpoint::open(path);
    checkpoint.check_against(checkpoint.model());
    BOOST_TEST((checkpoint.format() == CheckpointFormat::safetensors));
    BOOST_TEST(checkpoint.folder() == directory.path());
    BOOST_TEST(checkpoint.gguf() == nullptr);
    BOOST_TEST(checkpoint.names().size() == shapes.size());
    BOOST_TEST(checkpoint.model().vocab_size == 10);
    const auto& tensor = checkpoint.at("model.layers.1.mlp.down_proj.weight");
    BOOST_TEST(to_string(tensor.type) == "F32");
    BOOST_TEST(tensor.shape == (std::vector<std::size_t>{8, 12}));
    BOOST_TEST(tensor.bytes.size() == 8U * 12 * 4);
    BOOST_TEST(checkpoint.find("lm_head") == nullptr);
    BOOST_TEST(
        file_error([&] { checkpoint.at("lm_head.weigth"); }).ends_with("did you mean 'lm_head.weight'?"));
  }
}

BOOST_AUTO_TEST_CASE(shards_are_read) {
  write_shards(index());
  for (const fs::path& path : {directory.path(), directory / "model.safetensors.index.json"}) {
    const auto checkpoint = Checkpoint::open(path);
    checkpoint.check_against(checkpoint.model());
    BOOST_TEST(checkpoint.names().size() == shapes.size());
  }
  BOOST_TEST(fault(directory / "a.safetensors").find("model.layers.1.input_layernorm.weight is missing") !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_whole_file_is_read_although_an_index_lies_beside_it) {
  write("model.safetensors");
  put_contents(directory / "model.safetensors.index.json", index());  // of shards that are not there
  BOOST_TEST(Checkpoint::open(directory.path()).names().size() == shapes.size());
}

BOOST_AUTO_TEST_CASE(an_index_that_lies_is_refused) {
  const std::string place = in_folder("model.safetensors.index.json");
  const auto refusal = [&](const std::string& text) {
    write_shards(text);
    return fault();
  };
  BOOST_TEST(refusal(replaced(index(), "norm.weight\":\"a", "norm.weight\":\"b"))
                 .find("is in shard 'a.safetensors'") != std::string::npos);
  BOOST_TEST(refusal(replaced(index(), "\"lm_head.weight\":", "\"head\":")) ==
             place + ": tensor 'lm_head.weight' is in shard 'a.safetensors', but the index has no such tensor");
  BOOST_TEST(refusal(replaced(index(), "{\"lm_head", "{\"extra\":\"a.safetensors\",\"lm_head")) ==
             place + ": tensor 'extra' is not in its shard 'a.safetensors'");
  BOOST_TEST(refusal(replaced(index(), "a.safetensors", "c.safetensors")) ==
             "cannot read " + in_folder("c.safetensors") + ": No such file or directory");
  for (const std::string path :
       {"../a.safetensors", "/etc/passwd", "x/a.safetensors", "..", "", "a\\\\b", "a\\u0000"})
    BOOST_TEST(refusal(replaced(index(), "a.safetensors", path))
                   .starts_with(place +
                                ": the shard of tensor 'lm_head.weight' must be the name of a file in the same "
                                "folder, got \""));
  BOOST_TEST(refusal(replaced(index(), "\"a.safetensors\"", "7"))
                 .starts_with(place + ": the shard of tensor 'lm_head.weight' must be"));
  BOOST_TEST(refusal(replaced(index(), "{\"lm_head", "{\"lm_head.weight\":\"b.safetensors\",\"lm_head")) ==
             place + " is not a safetensors index: the key 'lm_head.weight' occurs twice");
  BOOST_TEST(refusal("{}") == place + " is not a safetensors index: it has no object 'weight_map'");
  BOOST_TEST(refusal(R"({"weight_map": {}})") == place + ": 'weight_map' names no tensor");
  BOOST_TEST(refusal("") == place + " is not a safetensors index: it is not JSON");
  BOOST_TEST(refusal(std::string(100000, '[')) ==
             place + " is not a safetensors index: it is nested too deeply");
}

BOOST_AUTO_TEST_CASE(a_tensor_in_two_shards_is_refused) {
  write_shards(index());
  write("b.safetensors",
        [](const auto& name) { return name.starts_with("model.layers.1.") || name == "lm_head.weight"; });
  BOOST_TEST(fault() == in_folder("b.safetensors") + ": tensor 'lm_head.weight' is also in another shard");
}

BOOST_AUTO_TEST_CASE(folders_that_are_no_checkpoint_are_refused) {
  BOOST_TEST(fault() == "'" + directory.path().string() +
                            "' has neither model.safetensors nor model.safetensors.index.json");
  put_contents(directory / "notes.txt", "hello");
  BOOST_TEST(fault(directory / "notes.txt")
                 .starts_with(in_folder("notes.txt") + " is not a checkpoint: expected a folder"));
  BOOST_TEST(fault(directory / "none") == "cannot read " + in_folder("none") + ": no such file or folder");
  put_contents(directory / "model.safetensors", "");
  BOOST_TEST(fault().starts_with(in_folder("model.safetensors") + " is not a valid safetensors file"));
  fs::remove(directory / "config.json");
  BOOST_TEST(fault() == "cannot read " + in_folder("config.json") + ": No such file or directory");
}

BOOST_AUTO_TEST_CASE(all_tensors_that_do_not_fit_are_listed) {
  SafetensorsWriter writer;
  for (const auto& [name, shape] : shapes) {
    if (name == "model.layers.0.mlp.up_proj.weight") continue;
    writer.add(name, name == "model.norm.weight" ? "I32" : "F32",
               name == "lm_head.weight" ? std::vector<std::size_t>{8, 10} : shape, ones.data());
  }
  writer.add("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {2}, ones.data());
  writer.add("model.layers.0.self_attn.q_norm.weight", "F32", {4}, ones.data());
  writer.add("model.layers.0.self_attn.q_proj.bias", "F32", {8}, ones.data());
  writer.write(directory / "model.safetensors");
  BOOST_TEST(fault() ==
             "'" + directory.path().string() +
                 "': the tensors do not match the model:\n  lm_head.weight has shape [8,10], expected "
                 "[10,8]\n  model.layers.0.mlp.up_proj.weight is missing, expected [12,8]\n  "
                 "model.norm.weight is of type I32, expected F64, F32, F16 or BF16\n  "
                 "model.layers.0.self_attn.q_norm.weight is present, but the model would ignore it\n  "
                 "model.layers.0.self_attn.q_proj.bias is present, but the model would ignore it");
  SafetensorsWriter().write(directory / "model.safetensors");
  BOOST_TEST(fault().ends_with("\n  and 1 more"));
}

// Files of other programs may have the embedding twice.
BOOST_AUTO_TEST_CASE(the_output_of_tied_models_is_their_embedding) {
  put_contents(directory / "config.json",
               replaced(config, "\"hidden_size\"", "\"tie_word_embeddings\": true, \"hidden_size\""));
  write("model.safetensors");
  BOOST_TEST(fault() == "no error");
  SafetensorsWriter writer;
  std::vector<float> others = ones;
  others[79] = 2;
  for (const auto& [name, shape] : shapes)
    writer.add(name, "F32", shape, name == "lm_head.weight" ? others.data() : ones.data());
  writer.write(directory / "model.safetensors");
  BOOST_TEST(fault() == "'" + directory.path().string() +
                            "': the tensors do not match the model:\n  lm_head.weight differs from "
                            "model.embed_tokens.weight, but tie_word_embeddings is true");
}

BOOST_AUTO_TEST_CASE(models_have_the_tensors_of_their_family) {
  auto model = read_model_config(directory / "config.json");
  BOOST_TEST(model_tensor_shapes(model).size() == 3U + 2 * 9);
  model.tie_word_embeddings = true;
  BOOST_TEST(!model_tensor_shapes(model).contains("lm_head.weight"));
  model.attention_bias = true;
  BOOST_TEST(model_tensor_shapes(model).at("model.layers.1.self_attn.k_proj.bias") ==
             (std::vector<std::size_t>{8}));
  model.qk_norm = true;
  BOOST_TEST(model_tensor_shapes(model).at("model.layers.0.self_attn.q_norm.weight") ==
             (std::vector<std::size_t>{4}));
}

BOOST_AUTO_TEST_SUITE_END()
