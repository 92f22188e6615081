// SPDX-License-Identifier: MIT
#include "io/deck/model_config.hpp"

#include <algorithm>
#include <climits>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/deck/layer_schema.hpp"
#include "io/deck/limits.hpp"
#include "io/deck/names_in.hpp"
#include "io/deck/read_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::decks {
namespace {

using nlohmann::json;

// Published files carry many keys that no layer needs.
void keep_known(json& object, const std::vector<std::string>& known) {
  for (auto entry = object.begin(); entry != object.end();) {
    const bool keep = std::find(known.begin(), known.end(), entry.key()) != known.end() && !entry->is_null();
    entry = keep ? std::next(entry) : object.erase(entry);
  }
}

bool is_qwen2(const json& config) { return config.value("model_type", json()) == "qwen2"; }

void translate_window(json& config) {
  const json used = config.value("use_sliding_window", json(!is_qwen2(config)));
  if (used == false && config.contains("sliding_window")) config["sliding_window"] = 0;
}

void translate_bias(json& config) {
  if (is_qwen2(config) && !config.contains("attention_bias")) config["attention_bias"] = true;
}

void translate_rope_scaling(json& config) {
  const auto scaling = config.find("rope_scaling");
  if (scaling == config.end() || !scaling->is_object()) return;
  if (!scaling->contains("rope_type") && scaling->contains("type"))
    (*scaling)["rope_type"] = (*scaling)["type"];
  if (scaling->value("rope_type", json()) == "default") (*scaling)["rope_type"] = "none";
  keep_known(*scaling, names_in<RopeScalingTable>());
}

Value to_value(const json& node, const Place& place);

Table to_table(const json& object, const Place& place) {
  Table table;
  for (const auto& [key, node] : object.items()) table.push_back({key, place, to_value(node, place)});
  return table;
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

Table read_model_config(const std::filesystem::path& path, const Place& named_at, Diagnostics& diagnostics) {
  auto source = std::make_shared<SourceText>(SourceText{path.string(), path.parent_path(), {}, INT_MAX});
  try {
    source->text = read_file(path, max_deck_bytes);
    json config = json::parse(source->text);
    if (!config.is_object()) {
      diagnostics.error({source}, "a model configuration is a JSON object");
      return {};
    }
    translate_window(config);
    translate_bias(config);
    translate_rope_scaling(config);
    keep_known(config, names_in<ModelTable>());
    config.erase("config");
    return to_table(config, {source});
  } catch (const FileError& error) {
    diagnostics.error(named_at, error.what());
  } catch (const json::parse_error& error) {
    diagnostics.error(place_of_byte(source, error.byte == 0 ? 0 : error.byte - 1), "the file is not JSON");
  }
  return {};
}

}  // namespace kformer::Impl::decks
