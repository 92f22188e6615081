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
                         file + first + " is missing; a linear map has an adapter in every layer or in none");
}

// What PEFT allows and Kformer does not compute must not be read as something else.
BOOST_AUTO_TEST_CASE(other_adapters_are_refused) {
  check_refused("peft_type", "IA3", "peft_type must be \"LORA\", got \"IA3\"");
  check_refused("use_dora", 1, "use_dora must be true or false, got 1");
  check_refused("fan_in_fan_out", true, "fan_in_fan_out is not supported; only false is");
  check_refused("bias", "all", "bias must be \"none\": the biases of the model stay as they are, got \"all\"");
  const std::string elsewhere = " is not supported: adapters are those of linear maps in every layer";
  check_refused("modules_to_save", {"lm_head"}, "modules_to_save" + elsewhere);
  check_refused("layers_to_transform", {1}, "layers_to_transform" + elsewhere);
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
  check_refused(
      "alpha_pattern", {{"layers.0.self_attn.q_proj", 3}},
      "alpha_pattern has the key \"layers.0.self_attn.q_proj\"; expected linear maps of every layer, each "
      "once, such as \"q_proj\"");
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
  changed["target_modules"] = {"q_proj", "self_attn.k_proj", "layers.0.mlp.up_proj",
                               "v_proj", "o_proj",           "a.down_proj"};
  write_config(changed);
  check_error<FileError>([&] { AdapterCheckpoint::open(folder); },
                         file +
                             "base_model.model.model.layers.0.mlp.gate_proj.lora_A.weight' is there, but "
                             "target_modules of adapter_config.json does not have 'gate_proj'");
  changed["target_modules"].push_back("gate_proj");
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
  check_error<FileError>(
      [&] { AdapterCheckpoint::open(folder).check_against(other); },
      file +
          "base_model.model.model.layers.2.mlp.down_proj.lora_A.weight' is missing; a linear map "
          "has an adapter in every layer or in none");

  const std::vector<double> numbers(96);
  SafetensorsWriter writer;
  writer.add("base_model.model.lm_head.lora_A.weight", "F64", {2, 48}, numbers.data());
  writer.write(folder / "adapter_model.safetensors");
  check_error<FileError>(
      [&] { AdapterCheckpoint::open(folder); },
      file + "base_model.model.lm_head.lora_A.weight' is no matrix A or B of a linear map in a layer");

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
