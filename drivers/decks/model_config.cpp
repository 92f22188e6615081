// SPDX-License-Identifier: MIT
#include "decks/model_config.hpp"

#include <climits>

#include "decks/layer_schema.hpp"
#include "io/config/config_json.hpp"
#include "io/config/config_rules.hpp"
#include "io/schema/names_in.hpp"
#include "io/schema/read_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::schema {

std::optional<NamedConfig> model_config_of(const Table& root) {
  const Entry* config = find_path(root, {"model", "config"});
  const auto* name = config != nullptr ? std::get_if<std::string>(&config->value.data) : nullptr;
  if (name == nullptr || name->empty()) return {};
  const Place& place = config->value.place;
  return NamedConfig{(place.source->directory / *name).lexically_normal(), place};
}

// Published files carry many keys that no layer needs.
Table read_layer_config(const NamedConfig& file, Diagnostics& diagnostics) {
  auto source =
      std::make_shared<SourceText>(SourceText{file.path.string(), file.path.parent_path(), {}, INT_MAX});
  try {
    source->text = read_file(file.path, max_text_bytes);
  } catch (const FileError& error) {
    diagnostics.error(file.named_at, error.what());
    return {};
  }
  auto config = parse_config(source, diagnostics);
  if (!config) return {};
  const auto report = [&](const std::string& fault) { diagnostics.error({source}, fault); };
  // The deck may name the family, and the weights of other programs for the same layers need no support.
  if (config->value("model_type", nlohmann::json()).is_null() && config->contains("architectures"))
    settle_family(*config, report);
  settle_layer(*config, report);
  translate_config(*config);
  keep_known(*config, names_in<ModelTable>());
  config->erase("config");
  return to_table(*config, {source});
}

}  // namespace kformer::Impl::schema
