// SPDX-License-Identifier: MIT
#include "io/config/config_json.hpp"

#include <algorithm>
#include <utility>

#include "io/config/model_schema.hpp"
#include "io/json_depth.hpp"
#include "io/schema/names_in.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::schema {
namespace {

using nlohmann::json;

// Deeper than any published file, and no danger for the recursion below.
constexpr int max_config_depth = 100;

bool has_unused_window(const json& config) {
  const json type = config.value("model_type", json());
  return type == "qwen2" || type == "qwen3";
}

void translate_window(json& config) {
  const json given = config.value("use_sliding_window", json());
  const bool unused = given.is_null() ? has_unused_window(config) : given == false;
  if (unused && config.contains("sliding_window")) config["sliding_window"] = 0;
}

void translate_bias(json& config) {
  if (config.value("model_type", json()) == "qwen2" && config.value("attention_bias", json()).is_null())
    config["attention_bias"] = true;
}

void translate_rope_scaling(json& config) {
  const auto scaling = config.find("rope_scaling");
  if (scaling == config.end() || !scaling->is_object()) return;
  if (!scaling->contains("rope_type") && scaling->contains("type"))
    (*scaling)["rope_type"] = (*scaling)["type"];
  if (scaling->value("rope_type", json()) == "default") (*scaling)["rope_type"] = "none";
  keep_known(*scaling, names_in<RopeScaling>());
}

Value to_value(const json& node, const Place& place) {
  Value value{Timestamp{}, place};
  if (node.is_boolean()) {
    value.data = node.get<bool>();
  } else if (node.is_number_unsigned() && node.get<std::uint64_t>() > INT64_MAX) {
    value.data = node.get<double>();
  } else if (node.is_number_integer()) {
    value.data = node.get<std::int64_t>();
  } else if (node.is_number()) {
    value.data = node.get<double>();
  } else if (node.is_string()) {
    value.data = node.get<std::string>();
  } else if (node.is_object()) {
    value.data = to_table(node, place);
  } else if (node.is_array()) {
    Array elements;
    for (const auto& element : node) elements.push_back(to_value(element, place));
    value.data = std::move(elements);
  }
  return value;
}

}  // namespace

std::optional<json> parse_config(const std::shared_ptr<SourceText>& source, Diagnostics& diagnostics) {
  if (!is_shallow_json(source->text, max_config_depth)) {
    diagnostics.error({source}, "the file is nested too deeply");
    return std::nullopt;
  }
  try {
    json config = json::parse(source->text);
    if (config.is_object()) return config;
    diagnostics.error({source}, "a model configuration is a JSON object");
  } catch (const json::parse_error& error) {
    diagnostics.error(place_of_byte(source, error.byte == 0 ? 0 : error.byte - 1), "the file is not JSON");
  } catch (const json::out_of_range&) {
    diagnostics.error({source}, "the file has a number beyond the range of doubles");
  }
  return std::nullopt;
}

void translate_config(json& config) {
  translate_window(config);
  translate_bias(config);
  translate_rope_scaling(config);
}

void keep_known(json& object, const std::vector<std::string>& known) {
  for (auto entry = object.begin(); entry != object.end();) {
    const bool keep = std::find(known.begin(), known.end(), entry.key()) != known.end() && !entry->is_null();
    entry = keep ? std::next(entry) : object.erase(entry);
  }
}

Table to_table(const json& object, const Place& place) {
  Table table;
  for (const auto& [key, node] : object.items()) table.push_back({key, place, to_value(node, place)});
  return table;
}

}  // namespace kformer::Impl::schema
