// SPDX-License-Identifier: MIT
#include "io/adapter/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/json_depth.hpp"
#include "io/schema/read_file.hpp"
#include "kformer/core/enum_names.hpp"
#include "kformer/core/error.hpp"

namespace kformer {

namespace Impl {

namespace {

using nlohmann::json;

constexpr int deepest_config = 16;
constexpr std::int64_t largest_rank = 1 << 20;

/// A configuration with what refuses it.
class Config {
 public:
  explicit Config(std::filesystem::path path) : m_path(std::move(path)) {
    const std::string text = schema::read_file(m_path, schema::max_text_bytes);
    if (!is_shallow_json(text, deepest_config)) refuse("it is nested too deeply");
    try {
      m_root = json::parse(text);
    } catch (const json::exception&) {
      refuse("it is not JSON");
    }
    if (!m_root.is_object()) refuse("it is not a JSON object");
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw FileError(fmt::format("'{}': {}", m_path.string(), reason));
  }
  [[noreturn]] void refuse_value(const std::string& key, const json& value, const char* expected) const {
    refuse(fmt::format("{} must be {}, got {}", key, expected,
                       value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 100)));
  }

  /// The value of a key, null if it is absent.
  json at(const char* key) const { return m_root.value(key, json()); }

  bool flag(const char* key) const {
    const json value = at(key);
    if (!value.is_null() && !value.is_boolean()) refuse_value(key, value, "true or false");
    return value == true;
  }
  std::int64_t rank(const std::string& key, const json& value) const {
    if (!value.is_number_integer() || value < 1 || value > largest_rank)
      refuse_value(key, value, "an integer from 1 to 1048576");
    return value.get<std::int64_t>();
  }
  double number(const std::string& key, const json& value) const {
    if (!value.is_number() || !std::isfinite(value.get<double>())) refuse_value(key, value, "a number");
    return value.get<double>();
  }

 private:
  std::filesystem::path m_path;
  json m_root;
};

// PiSSA, OLoRA and others take the first B A from the weights: the adapter is that of other weights, unless PEFT has
// converted it, which it does with `path_initial_model_for_weight_conversion` and then says true.
void refuse_changed_weights(const Config& config) {
  const json value = config.at("init_lora_weights");
  if (value.is_null() || value.is_boolean()) return;
  if (!value.is_string()) config.refuse_value("init_lora_weights", value, "true, false or a name");
  std::string name = value.get<std::string>();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::array<std::string_view, 4> harmless{"gaussian", "eva", "orthogonal", "mica"};
  if (std::ranges::find(harmless, name) == harmless.end())
    config.refuse_value(
        "init_lora_weights", value,
        "true, false, \"gaussian\", \"eva\", \"orthogonal\" or \"mica\"; others may change the "
        "weights of the base: let PEFT convert the adapter (path_initial_model_for_weight_conversion)");
}

// What would make the adapter another function.
void refuse_other_adapters(const Config& config) {
  if (const json type = config.at("peft_type"); type != "LORA")
    config.refuse_value("peft_type", type, "\"LORA\"");
  for (const char* key : {"fan_in_fan_out", "lora_bias", "use_qalora", "use_bdlora", "alora_invocation_tokens",
                          "arrow_config", "kasa_config", "monteclora_config"})
    if (const json value = config.at(key); !value.is_null() && value != false)
      config.refuse(fmt::format("{} is not supported; only false is", key));
  if (const json bias = config.at("bias"); !bias.is_null() && bias != "none")
    config.refuse_value("bias", bias, "\"none\": the biases of the model stay as they are");
  for (const char* key : {"modules_to_save", "layers_to_transform", "layer_replication",
                          "trainable_token_indices", "target_parameters"})
    if (const json value = config.at(key); !value.is_null() && !value.empty())
      config.refuse(fmt::format("{} is not supported: adapters are those of linear maps in every layer", key));
  refuse_changed_weights(config);
}

/// The values of a pattern by projection.
template <class Read>
auto pattern(const Config& config, const char* key, Read read) {
  std::map<Projection, decltype(read(std::string(), json()))> values;
  const json entries = config.at(key);
  if (entries.is_null()) return values;
  if (!entries.is_object()) config.refuse_value(key, entries, "an object");
  for (const auto& [name, value] : entries.items()) {
    const auto known = values.size();
    for (std::size_t i = 0; i < names_of<Projection>.size(); ++i) {
      const auto p = static_cast<Projection>(i);
      if (name == name_of(p) || name == module_of(p))
        values.emplace(p, read(fmt::format("{} of {}", key, name), value));
    }
    if (values.size() == known)
      config.refuse(
          fmt::format("{} has the key \"{}\"; expected linear maps of every layer, each once, such as "
                      "\"q_proj\"",
                      key, name.substr(0, 100)));
  }
  return values;
}

std::optional<std::vector<std::string>> modules_of(const Config& config) {
  const json value = config.at("target_modules");
  if (!value.is_array()) return std::nullopt;
  std::vector<std::string> modules;
  for (const json& module : value) {
    if (!module.is_string()) config.refuse_value("target_modules", value, "a list of names");
    modules.push_back(module.get<std::string>());
  }
  return modules;
}

}  // namespace

bool AdapterConfig::adapts(Projection p) const {
  const std::string name(name_of(p));
  return !modules || std::ranges::any_of(*modules, [&](const std::string& module) {
    return module == name || module.ends_with("." + name);
  });
}

std::int64_t AdapterConfig::rank_of(Projection p) const {
  const auto other = ranks.find(p);
  return other == ranks.end() ? rank : other->second;
}

double AdapterConfig::alpha_of(Projection p) const {
  const auto other = alphas.find(p);
  return other == alphas.end() ? alpha : other->second;
}

AdapterConfig read_adapter_config(const std::filesystem::path& path) {
  const Config config(path);
  refuse_other_adapters(config);
  AdapterConfig all;
  all.rank = config.rank("r", config.at("r"));
  all.alpha = config.number("lora_alpha", config.at("lora_alpha"));
  all.rank_stabilized = config.flag("use_rslora");
  all.magnitudes = config.flag("use_dora");
  const json dropout = config.at("lora_dropout");
  all.dropout = dropout.is_null() ? 0 : config.number("lora_dropout", dropout);
  if (!(all.dropout >= 0 && all.dropout < 1)) config.refuse_value("lora_dropout", dropout, "in [0, 1)");
  all.ranks =
      pattern(config, "rank_pattern", [&](const auto& key, const json& v) { return config.rank(key, v); });
  all.alphas =
      pattern(config, "alpha_pattern", [&](const auto& key, const json& v) { return config.number(key, v); });
  all.modules = modules_of(config);
  if (const json base = config.at("base_model_name_or_path"); base.is_string())
    all.description.base_model = base.get<std::string>();
  return all;
}

}  // namespace Impl

std::string adapter_config_json(const LoraConfig& lora, const AdapterDescription& description) {
  nlohmann::ordered_json targets = nlohmann::ordered_json::array(), ranks = nlohmann::ordered_json::object(),
                         alphas = ranks;
  const LoraTarget* first = nullptr;
  for (std::size_t i = 0; i < lora.targets.size(); ++i) {
    const LoraTarget& target = lora.targets[i];
    if (target.rank == 0) continue;
    const std::string name(names_of<Projection>[i]);
    if (first == nullptr) first = &target;
    targets.push_back(name);
    if (target.rank != first->rank) ranks[name] = target.rank;
    if (target.alpha != first->alpha) alphas[name] = target.alpha;
  }
  if (first == nullptr) throw Error("kformer::adapter_config_json: no projection has an adapter");
  const nlohmann::ordered_json config{{"peft_type", "LORA"},
                                      {"task_type", "CAUSAL_LM"},
                                      {"base_model_name_or_path", description.base_model},
                                      {"inference_mode", true},
                                      {"r", first->rank},
                                      {"lora_alpha", first->alpha},
                                      {"lora_dropout", lora.dropout},
                                      {"target_modules", targets},
                                      {"rank_pattern", ranks},
                                      {"alpha_pattern", alphas},
                                      {"use_rslora", lora.rank_stabilized},
                                      {"use_dora", lora.magnitudes},
                                      {"bias", "none"},
                                      {"fan_in_fan_out", false},
                                      {"modules_to_save", nullptr}};
  return config.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace kformer
