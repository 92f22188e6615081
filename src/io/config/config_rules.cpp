// SPDX-License-Identifier: MIT
#include "io/config/config_rules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "kformer/io/model_table.hpp"

namespace kformer::Impl {
namespace {

using nlohmann::json;

constexpr auto families = names_of<ModelType>;
constexpr std::array<std::string_view, families.size()> architectures{"LlamaForCausalLM", "MistralForCausalLM",
                                                                      "Qwen2ForCausalLM", "Qwen3ForCausalLM"};

/// The value of a key, null if there is none.
json value_of(const json& config, const char* key) {
  const auto entry = config.find(key);
  return entry == config.end() ? json() : *entry;
}

/// An excerpt of a value that may be long, for error texts.
std::string quoted(const json& value) {
  constexpr std::size_t most = 80;
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= most ? text : text.substr(0, most) + " ...";
}

bool is_object_of_objects(const json& value) {
  return value.is_object() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const json& entry) { return entry.is_object(); });
}

bool is_qwen(const json& config) {
  const json type = value_of(config, "model_type");
  return type == "qwen2" || type == "qwen3";
}

void check_layer_types(json& config, const ReportFault& report) {
  const json types = value_of(config, "layer_types");
  if (!types.is_array() || types.empty()) return;
  const auto all = [&](const char* type) {
    return std::all_of(types.begin(), types.end(), [&](const json& entry) { return entry == type; });
  };
  if (all("full_attention"))
    config["sliding_window"] = 0;
  else if (!all("sliding_attention"))
    report(
        "'layer_types' must be \"full_attention\" for all layers, or \"sliding_attention\" for all; other "
        "mixtures are not supported");
}

/// The index of a name in a list; the length of the list for other values.
template <class Names>
auto find_name(const Names& names, const json& value) {
  const auto* text = value.get_ptr<const std::string*>();
  return text ? std::find(names.begin(), names.end(), *text) : names.end();
}

/// Moves `rope_parameters` of newer files to the keys of older files: `rope_theta`, `rope_scaling`. If a file has both
/// tables, the older one counts, and what a table has counts more than a key beside it.
void unfold_rope_parameters(json& config, const ReportFault& report) {
  const json scaling = value_of(config, "rope_scaling");
  const bool newer = scaling.is_null() || scaling.empty();
  json parameters = newer ? value_of(config, "rope_parameters") : scaling;
  if (parameters.is_null()) return;
  if (newer && (!parameters.is_object() || is_object_of_objects(parameters))) {
    report("'rope_parameters' must be one table for all layers, got " + quoted(parameters));
    return;
  }
  if (!parameters.is_object()) return;
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    if (const json value = value_of(parameters, key); !value.is_null()) config[key] = value;
    parameters.erase(key);
  }
  config["rope_scaling"] = parameters;
}

/// Adds the defaults of the families.
void add_family_defaults(json& config) {
  const auto absent = [&](const char* key) { return value_of(config, key).is_null(); };
  const json type = value_of(config, "model_type");
  if (absent("rms_norm_eps")) config["rms_norm_eps"] = 1e-6;
  // If this key is null, it is the number of all heads.
  if (type == "mistral" && !config.contains("num_key_value_heads")) config["num_key_value_heads"] = 8;
  if (type == "mistral" && !config.contains("sliding_window")) config["sliding_window"] = 4096;
  if (is_qwen(config) && !config.contains("num_key_value_heads")) config["num_key_value_heads"] = 32;
  if (type == "qwen3" && !config.contains("head_dim")) config["head_dim"] = 128;
  if (is_qwen(config) && value_of(config, "use_sliding_window") == true) {
    if (!config.contains("sliding_window")) config["sliding_window"] = 4096;
    if (absent("max_window_layers")) config["max_window_layers"] = 28;
  }
}

/// Sets `sliding_window` to 0 where no layer has it, and reports windows on only some layers.
void settle_window(json& config, const ReportFault& report) {
  check_layer_types(config, report);
  const json first = value_of(config, "max_window_layers");
  const json layers = value_of(config, "num_hidden_layers");
  if (!is_qwen(config) || value_of(config, "use_sliding_window") != true || config.contains("layer_types") ||
      !first.is_number_integer() || !layers.is_number_integer())
    return;
  // The layers from this one on have the window.
  if (first >= layers)
    config["sliding_window"] = 0;
  else if (first > 0)
    report(fmt::format("'max_window_layers' = {} of {} layers: windows on only some layers are not supported",
                       quoted(first), quoted(layers)));
}

/// Reports keys that ask for unsupported computations.
void refuse_other_models(const json& config, const ReportFault& report) {
  const auto require = [&](const char* key, const json& expected, const char* what) {
    const json value = value_of(config, key);
    if (!value.is_null() && value != expected)
      report(fmt::format("'{}' must be {}, got {}: {}", key, quoted(expected), quoted(value), what));
  };
  require("mlp_bias", false, "biases of the MLP are not supported");
  require("rope_interleaved", false, "weights must be in half-split order");
  require("partial_rotary_factor", 1, "RoPE on part of a head is not supported");
  require("use_qk_norm", value_of(config, "model_type") == "qwen3", "only qwen3 normalises q and k");
  const json scaling = value_of(config, "rope_scaling");
  if (!scaling.is_object()) return;
  const json type = value_of(scaling, scaling.contains("rope_type") ? "rope_type" : "type");
  if (type.is_null() && !scaling.empty())
    report("'rope_scaling.rope_type' is missing, expected \"default\" or \"llama3\"");
  if (type != "llama3") return;
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    if (value_of(scaling, key).is_null())
      report(fmt::format("'rope_scaling.{}' is missing, \"llama3\" needs it", key));
}

}  // namespace

void settle_family(json& config, const ReportFault& report) {
  json& type = config["model_type"];
  const json named = value_of(config, "architectures");
  if (named.is_array() && !named.empty()) {
    const auto known = find_name(architectures, named.front());
    if (known == architectures.end())
      report(fmt::format("'architectures' must be one of {}, got {}", fmt::join(architectures, ", "),
                         quoted(named.front())));
    else if (type.is_null())
      type = families[static_cast<std::size_t>(known - architectures.begin())];
    else if (type != families[static_cast<std::size_t>(known - architectures.begin())] &&
             find_name(families, type) != families.end())
      report(
          fmt::format("'architectures' names {}, but 'model_type' is {}", quoted(named.front()), quoted(type)));
  }
  if (type.is_null() && !(named.is_array() && !named.empty()))
    report(fmt::format("missing key 'model_type': one of {}", fmt::join(families, ", ")));
}

void settle_layer(json& config, const ReportFault& report) {
  unfold_rope_parameters(config, report);
  refuse_other_models(config, report);
  add_family_defaults(config);
  settle_window(config, report);
}

// NF4 with double quantisation is what the tensors can be read as.
void refuse_other_quantization(const json& config, const ReportFault& report) {
  const json quantization = value_of(config, "quantization_config");
  if (quantization.is_null()) return;
  if (!quantization.is_object() || value_of(quantization, "quant_method") != "bitsandbytes") {
    report(fmt::format(
        "'quantization_config' must be null or that of bitsandbytes, got {}: this quantisation is not "
        "supported",
        quoted(quantization)));
    return;
  }
  for (const auto& [key, expected] : {std::pair<const char*, json>{"load_in_4bit", true},
                                      {"bnb_4bit_quant_type", "nf4"},
                                      {"bnb_4bit_use_double_quant", true}})
    if (const json value = value_of(quantization, key); value != expected)
      report(fmt::format(
          "'quantization_config.{}' must be {}, got {}: of bitsandbytes, NF4 with double quantisation is "
          "supported",
          key, quoted(expected), quoted(value)));
}

}  // namespace kformer::Impl
