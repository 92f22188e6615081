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

// In the order of the file: of the keys of a pattern the first that fits counts.
using json = nlohmann::ordered_json;

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
  for (const char* key :
       {"modules_to_save", "layer_replication", "trainable_token_indices", "target_parameters"})
    if (const json value = config.at(key); !value.is_null() && !value.empty())
      config.refuse(fmt::format("{} is not supported: adapters are those of linear maps in layers", key));
  refuse_changed_weights(config);
}

bool is_name(std::string_view key) {
  if (key.starts_with('^')) key.remove_prefix(1);
  return !key.empty() &&
         std::ranges::all_of(key, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; });
}

/// The values of a pattern by their keys. PEFT takes keys for regular expressions, of which names are the simplest.
template <class Read>
auto pattern(const Config& config, const char* key, Read read) {
  std::vector<std::pair<std::string, decltype(read(std::string(), json()))>> values;
  const json entries = config.at(key);
  if (entries.is_null()) return values;
  if (!entries.is_object()) config.refuse_value(key, entries, "an object");
  for (const auto& [name, value] : entries.items()) {
    if (!is_name(name))
      config.refuse(
          fmt::format("{} has the key \"{}\"; expected names of linear maps, such as \"q_proj\" or "
                      "\"layers.0.self_attn.q_proj\", and no other regular expression",
                      key, name.substr(0, 100)));
    values.emplace_back(name, read(fmt::format("{} of {}", key, name), value));
  }
  return values;
}

/// Whether a key of a pattern is the end of a name, from a dot on. A dot of the key is any character.
bool fits(std::string_view key, std::string_view name) {
  const bool whole = key.starts_with('^');
  if (whole) key.remove_prefix(1);
  if (key.size() > name.size()) return false;
  const std::size_t begin = name.size() - key.size();
  return (begin == 0 || (!whole && name[begin - 1] == '.')) &&
         std::ranges::equal(key, name.substr(begin), [](char k, char c) { return k == '.' || k == c; });
}

/// The value of the first key that fits.
template <class T>
T value_of(const std::vector<std::pair<std::string, T>>& values, const std::string& name, T otherwise) {
  const auto found = std::ranges::find_if(values, [&](const auto& entry) { return fits(entry.first, name); });
  return found == values.end() ? otherwise : found->second;
}

/// Nothing if the value is no list.
std::optional<std::vector<std::string>> names_at(const Config& config, const char* key) {
  const json value = config.at(key);
  if (!value.is_array()) return std::nullopt;
  std::vector<std::string> names;
  for (const json& name : value) {
    if (!name.is_string()) config.refuse_value(key, value, "a list of names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

std::optional<std::set<std::int64_t>> layers_of(const Config& config) {
  json value = config.at("layers_to_transform");
  if (value.empty()) return std::nullopt;
  if (!config.at("target_modules").is_array())
    config.refuse("layers_to_transform is set, but target_modules is no list of names");
  const json stacks = config.at("layers_pattern");
  if (!stacks.empty() && stacks != "" && stacks != "layers" &&
      !(stacks.is_array() && std::ranges::find(stacks, json("layers")) != stacks.end()))
    config.refuse_value("layers_pattern", stacks, "\"layers\", where the layers of a model are");
  if (!value.is_array()) value = json::array({value});
  std::set<std::int64_t> layers;
  for (const json& layer : value) {
    if (!layer.is_number_integer()) config.refuse_value("layers_to_transform", value, "numbers of layers");
    layers.insert(layer.get<std::int64_t>());
  }
  return layers;
}

}  // namespace

std::string LayerMap::name() const { return fmt::format("model.layers.{}.{}", layer, module_of(projection)); }

bool AdapterConfig::leaves_out(const LayerMap& map) const {
  const std::string name = map.name();
  const auto has = [&](const std::vector<std::string>& names) {
    return std::ranges::any_of(
        names, [&](const std::string& end) { return end == name || name.ends_with("." + end); });
  };
  return (modules && !has(*modules)) || has(excluded) || (layers && !layers->contains(map.layer));
}

std::int64_t AdapterConfig::rank_of(const LayerMap& map) const { return value_of(ranks, map.name(), rank); }

double AdapterConfig::alpha_of(const LayerMap& map) const { return value_of(alphas, map.name(), alpha); }

double AdapterConfig::scale_of(const LayerMap& map) const {
  const auto own = static_cast<double>(rank_of(map));
  return alpha_of(map) / (rank_stabilized ? std::sqrt(own) : own);
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
  all.modules = names_at(config, "target_modules");
  all.excluded = names_at(config, "exclude_modules").value_or(std::vector<std::string>());
  all.layers = layers_of(config);
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
