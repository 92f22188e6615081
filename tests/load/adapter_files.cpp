// SPDX-License-Identifier: MIT
// Folders of adapters that are read or refused with a sentence.
#include <boost/test/unit_test.hpp>

#include <vector>

#include "kformer/io/safetensors.hpp"
#include "kformer/load/llama_config.hpp"
#include "load/adapter_case.hpp"

namespace kformer::Testing {

BOOST_FIXTURE_TEST_SUITE(adapter_files, AdapterFolder)

BOOST_AUTO_TEST_CASE(magnitudes_fit_the_configuration) {
  fs::copy(test_data("dora_case"), folder, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  BOOST_TEST(AdapterCheckpoint::open(folder).lora().magnitudes);
  const std::string file = "'" + (folder / "adapter_model.safetensors").string() + "': tensor '",
                    first = "base_model.model.model.layers.0.mlp.down_proj.lora_magnitude_vector'";
  json changed = config();
  changed["use_dora"] = false;
  write_config(changed);
  check_error<FileError>([&] { AdapterCheckpoint::open(folder); },
                         file + first + " has magnitudes, but adapter_config.json says that use_dora is false");
  fs::copy(adapter_case(), folder, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  changed = config();
  changed["use_dora"] = true;
  write_config(changed);
  const auto without = AdapterCheckpoint::open(folder);
  check_error<FileError>([&] { without.check_against(llama_config(base().model())); },
                         file + first +
                             " is missing; adapter_config.json does not say that "
                             "'model.layers.0.mlp.down_proj' has no adapter");
}

// As PEFT reads them: the first key that is the end of a name counts, and a dot is any character.
BOOST_AUTO_TEST_CASE(patterns_name_linear_maps) {
  const auto lora_with = [&](const json& ranks, const json& alphas) {
    json changed = config();
    changed["rank_pattern"] = ranks;
    changed["alpha_pattern"] = alphas;
    write_config(changed);
    return AdapterCheckpoint::open(folder).lora();
  };
  // In text, because the order counts.
  const auto in_order = [](const char* text) { return nlohmann::ordered_json::parse(text); };
  const json down{{"down_proj", 3}};
  BOOST_TEST(lora_with(down, {{"self_attn.q_proj", 7}})[Projection::q].alpha == 7);
  BOOST_TEST(lora_with(down, {{"attn.q_proj", 7}})[Projection::q].alpha == 3);
  BOOST_TEST(lora_with(down, {{"q.proj", 7}})[Projection::q].alpha == 7);
  BOOST_TEST(lora_with(down, {{"^q_proj", 7}})[Projection::q].alpha == 3);
  BOOST_TEST(lora_with(down, {{"lm_head", 7}})[Projection::q].alpha == 3);
  const json each{{"^model.layers.0.self_attn.q_proj", 7}, {"1.self_attn.q_proj", 7}};
  BOOST_TEST(lora_with(down, each)[Projection::q].alpha == 7);
  BOOST_TEST(
      lora_with({{"layers.0.mlp.down_proj", 3}, {"model.layers.1.mlp.down_proj", 3}}, nullptr)[Projection::down]
          .rank == 3);
  nlohmann::ordered_json changed = in_order(config().dump().c_str());
  changed["alpha_pattern"] = in_order(R"({"self_attn.v_proj": 5, "v_proj": 9})");
  std::ofstream(folder / "adapter_config.json") << changed;
  BOOST_TEST(AdapterCheckpoint::open(folder).lora()[Projection::v].alpha == 5);
  changed["alpha_pattern"] = in_order(R"({"v_proj": 9, "self_attn.v_proj": 5})");
  std::ofstream(folder / "adapter_config.json") << changed;
  BOOST_TEST(AdapterCheckpoint::open(folder).lora()[Projection::v].alpha == 9);
}

// An adapter of all maps in layer 1 alone.
BOOST_AUTO_TEST_CASE(layers_without_an_adapter_have_zeros) {
  const LlamaConfig model = llama_config(base().model());
  const auto write = [&](const char* source) {
    const SafetensorsFile all = SafetensorsFile::open(test_data(source) / "adapter_model.safetensors");
    SafetensorsWriter writer;
    std::vector<std::vector<double>> values;
    for (const std::string& name : all.names())
      if (name.find("layers.1.") != name.npos)
        writer.add(name, "F64", all.at(name).shape, values.emplace_back(all.read_f64(name)).data());
    writer.write(folder / "adapter_model.safetensors");
  };
  write("adapter_case");
  const std::string missing =
      "'" + (folder / "adapter_model.safetensors").string() +
      "': tensor 'base_model.model.model.layers.0.mlp.down_proj.lora_A.weight' is missing; "
      "adapter_config.json does not say that 'model.layers.0.mlp.down_proj' has no adapter";
  json changed = config();
  changed["layers_to_transform"] = json::array();
  write_config(changed);
  check_error<FileError>([&] { AdapterCheckpoint::open(folder, model); }, missing);
  for (const json& layers : {json(1), json::array({1}), json::array({1, 7})})
    for (const json& stacks : {json(), json(""), json("layers"), json::array({"h", "layers"})}) {
      changed["layers_to_transform"] = layers;
      changed["layers_pattern"] = stacks;
      write_config(changed);
      const auto adapter = AdapterCheckpoint::open(folder, model);
      BOOST_TEST(adapter.values("model.layers.0.mlp.down_proj.lora_B.weight") == std::vector<double>(48 * 3));
      BOOST_TEST(adapter.values("model.layers.1.mlp.down_proj.lora_B.weight") ==
                 SafetensorsFile::open(adapter_case() / "adapter_model.safetensors")
                     .read_f64("base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"));
    }
  changed["layers_to_transform"] = nullptr;
  changed["exclude_modules"] = json::array();
  for (const std::string module : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                   "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
    changed["exclude_modules"].push_back("layers.0." + module);
  write_config(changed);
  AdapterCheckpoint::open(folder, model);
  changed["exclude_modules"].erase(std::size_t(6));
  write_config(changed);
  check_error<FileError>([&] { AdapterCheckpoint::open(folder, model); }, missing);

  write("dora_case");
  changed["use_dora"] = true;
  changed["exclude_modules"] = nullptr;
  changed["layers_to_transform"] = {1};
  write_config(changed);
  check_error<FileError>(
      [&] { AdapterCheckpoint::open(folder, model); },
      "'" + (folder / "adapter_config.json").string() +
          "': 'model.layers.0.mlp.down_proj' has no adapter, but others have magnitudes "
          "(use_dora); with magnitudes a linear map has an adapter in every layer or in none");
}

// What PEFT allows and Kformer does not compute must not be read as something else.
BOOST_AUTO_TEST_CASE(other_adapters_are_refused) {
  check_refused("peft_type", "IA3", "peft_type must be \"LORA\", got \"IA3\"");
  check_refused("use_dora", 1, "use_dora must be true or false, got 1");
  check_refused("fan_in_fan_out", true, "fan_in_fan_out is not supported; only false is");
  check_refused("bias", "all", "bias must be \"none\": the biases of the model stay as they are, got \"all\"");
  const std::string elsewhere = " is not supported: adapters are those of linear maps in layers";
  check_refused("modules_to_save", {"lm_head"}, "modules_to_save" + elsewhere);
  check_refused("layers_to_transform", {1.5}, "layers_to_transform must be numbers of layers, got [1.5]");
  check_refused("kasa_config", {{"beta", 1}}, "kasa_config is not supported; only false is");
  for (const char* name : {"pissa", "pissa_niter_4", "OLoRA", "corda"})
    check_refused("init_lora_weights", name,
                  "init_lora_weights must be true, false, \"gaussian\", \"eva\", \"orthogonal\" or \"mica\"; "
                  "others may change the weights of the base: let PEFT convert the adapter "
                  "(path_initial_model_for_weight_conversion), got \"" +
                      std::string(name) + "\"");
  check_refused("init_lora_weights", 3, "init_lora_weights must be true, false or a name, got 3");
  check_refused("r", 0, "r must be an integer from 1 to 1048576, got 0");
  check_refused("r", "two", "r must be an integer from 1 to 1048576, got \"two\"");
  check_refused("lora_alpha", nullptr, "lora_alpha must be a number, got null");
  check_refused("lora_dropout", 1, "lora_dropout must be in [0, 1), got 1");
  check_refused("use_rslora", 1, "use_rslora must be true or false, got 1");
  check_refused("target_modules", {"q_proj", 3}, "target_modules must be a list of names, got [\"q_proj\",3]");
  check_refused("rank_pattern", {3}, "rank_pattern must be an object, got [3]");
  check_refused("rank_pattern", {{"down_proj", -3}},
                "rank_pattern of down_proj must be an integer from 1 to 1048576, got -3");
  for (const char* key : {"q_proj|k_proj", ".*q_proj", "", "^"})
    check_refused("alpha_pattern", {{key, 3}},
                  "alpha_pattern has the key \"" + std::string(key) +
                      "\"; expected names of linear maps, such as \"q_proj\" or \"layers.0.self_attn.q_proj\", "
                      "and no other regular expression");
  check_refused(
      "alpha_pattern", {{"layers.0.mlp.down_proj", 6}},
      "the adapter of 'model.layers.1.mlp.down_proj' has the factor 1.7320508075688774, and that of "
      "'model.layers.0.mlp.down_proj' 3.464101615137755; layers may differ in rank, but not in this factor, "
      "alpha over rank or its root");
  json changed = config();
  changed["layers_to_transform"] = {0, 1};
  for (const json& stacks : {json("h"), json::array({"h"}), json(3)}) {
    changed["layers_pattern"] = stacks;
    write_config(changed);
    check_error<FileError>([&] { AdapterCheckpoint::open(folder); },
                           "'" + (folder / "adapter_config.json").string() +
                               "': layers_pattern must be \"layers\", where the layers of a model are, got " +
                               stacks.dump());
  }
  changed["target_modules"] = "q_proj";
  write_config(changed);
  check_error<FileError>([&] { AdapterCheckpoint::open(folder); },
                         "'" + (folder / "adapter_config.json").string() +
                             "': layers_to_transform is set, but target_modules is no list of names");
}

BOOST_AUTO_TEST_CASE(files_that_are_no_adapter_are_refused) {
  const std::string config = "'" + (folder / "adapter_config.json").string() + "': ";
  for (const auto& [text, reason] :
       {std::pair<std::string, std::string>("{", "it is not JSON"),
        {"[]", "it is not a JSON object"},
        {std::string(40, '[') + std::string(40, ']'), "it is nested too deeply"}}) {
    std::ofstream(folder / "adapter_config.json") << text;
    check_error<FileError>([&] { AdapterCheckpoint::open(folder); }, config + reason);
  }
  BOOST_CHECK_THROW(AdapterCheckpoint::open(directory / "nothing"), FileError);
  fs::copy(adapter_case(), folder, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  std::ofstream(folder / "adapter_model.bin") << "a pickle";
  AdapterCheckpoint::open(folder);
  fs::remove(folder / "adapter_model.safetensors");
  check_error<FileError>([&] { AdapterCheckpoint::open(folder); },
                         "'" + (folder / "adapter_model.bin").string() +
                             "' is a pickle, which may run any program; let PEFT load the adapter and write it "
                             "again, as adapter_model.safetensors");
}

BOOST_AUTO_TEST_CASE(tensors_fit_configuration_and_model) {
  const LlamaConfig model = llama_config(base().model());
  const std::string file = "'" + (folder / "adapter_model.safetensors").string() + "': tensor '";
  json changed = config();
  changed["r"] = 4;
  write_config(changed);
  check_error<FileError>(
      [&] { AdapterCheckpoint::open(folder); },
      file +
          "base_model.model.model.layers.0.mlp.gate_proj.lora_A.weight' has the extents [2, 48], "
          "but adapter_config.json says that its rank is 4");
  changed["r"] = 2;
  changed["target_modules"] = {"q_proj", "self_attn.k_proj", "layers.0.mlp.up_proj",   "layers.1.mlp.up_proj",
                               "v_proj", "o_proj",           "layers.0.mlp.gate_proj", "down_proj"};
  write_config(changed);
  check_error<FileError>([&] { AdapterCheckpoint::open(folder); },
                         file +
                             "base_model.model.model.layers.1.mlp.gate_proj.lora_A.weight' is there, but "
                             "adapter_config.json says that 'model.layers.1.mlp.gate_proj' has no adapter");
  changed["target_modules"].push_back("mlp.gate_proj");
  write_config(changed);
  BOOST_TEST(AdapterCheckpoint::open(folder).lora()[Projection::gate].rank == 2);
  write_config(json::parse(std::ifstream(adapter_case() / "adapter_config.json")));

  LlamaConfig other = model;
  other.intermediate_size = 64;
  check_error<FileError>([&] { AdapterCheckpoint::open(folder).check_against(other); },
                         file +
                             "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight' has the extents [3, "
                             "128], expected [3, 64]: the adapter belongs to another model");
  other = model;
  other.num_hidden_layers = 1;
  check_error<FileError>(
      [&] { AdapterCheckpoint::open(folder).check_against(other); },
      file +
          "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight' belongs to no layer of "
          "the model, which has 1");
  other.num_hidden_layers = 3;
  check_error<FileError>([&] { AdapterCheckpoint::open(folder).check_against(other); },
                         file +
                             "base_model.model.model.layers.2.mlp.down_proj.lora_A.weight' is missing; "
                             "adapter_config.json does not "
                             "say that 'model.layers.2.mlp.down_proj' has no adapter");

  const std::vector<double> numbers(96);
  SafetensorsWriter writer;
  writer.add("base_model.model.lm_head.lora_A.weight", "F64", {2, 48}, numbers.data());
  writer.write(folder / "adapter_model.safetensors");
  check_error<FileError>(
      [&] { AdapterCheckpoint::open(folder); },
      file +
          "base_model.model.lm_head.lora_A.weight' is no matrix A or B of a linear map in a layer, such as "
          "'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight'");

  SafetensorsWriter integers;
  integers.add("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "I32", {2, 48},
               numbers.data());
  integers.write(folder / "adapter_model.safetensors");
  check_error<FileError>(
      [&] { AdapterCheckpoint::open(folder); },
      "'" + (folder / "adapter_model.safetensors").string() +
          "': 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight' is of type I32, "
          "expected F64, F32, F16 or BF16");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
