// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "io/config/config_json.hpp"
#include "io/config/config_rules.hpp"
#include "io/config/model_schema.hpp"
#include "io/config/model_text.hpp"
#include "io/schema/names_in.hpp"
#include "io/schema/read_file.hpp"
#include "io/schema/reader.hpp"
#include "kformer/core/error.hpp"

namespace kformer {
namespace {

using namespace Impl::schema;
using nlohmann::json;

std::vector<std::string> all_names() {
  LanguageModelTable table;
  NameCollector collector;
  describe(collector, table);
  describe_model(collector, table);
  return collector.names;
}

/// The entries of a file under the names of the tables, with all rules of the families applied.
Table settled_entries(json config, const Place& place, Diagnostics& diagnostics) {
  const auto report = [&](const std::string& fault) { diagnostics.error(place, fault); };
  Impl::settle_family(config, report);
  Impl::settle_layer(config, report);
  Impl::refuse_other_quantization(config, report);
  translate_config(config);
  keep_known(config, all_names());
  config.erase("config");
  return to_table(config, place);
}

LanguageModelTable read_entries(const Table& entries, const Place& place, Diagnostics& diagnostics) {
  LanguageModelTable model;
  Reader reader(entries, place, "", diagnostics);
  describe(reader, model);
  describe_model(reader, model);
  for (const char* key : {"hidden_size", "num_attention_heads", "intermediate_size"})
    if (find(entries, key) == nullptr)
      diagnostics.error(place, fmt::format("missing key '{}' at the top level: an integer >= 1", key));
  return model;
}

Place whole_file(const std::string& name) {
  return {std::make_shared<SourceText>(SourceText{.name = name, .directory = {}, .text = {}})};
}

/// The keys of a configuration, with nothing derived.
/// \param name of the configuration in error texts
LanguageModelTable keys_of(json config, const std::string& name) {
  const Place place = whole_file(name);
  Diagnostics diagnostics;
  const Table entries = settled_entries(std::move(config), place, diagnostics);
  LanguageModelTable model = read_entries(entries, place, diagnostics);
  if (!diagnostics.empty()) throw FileError(diagnostics.report());
  return model;
}

LanguageModelTable completed(LanguageModelTable model, const std::string& name) {
  const Place place = whole_file(name);
  Diagnostics diagnostics;
  for (const auto& fault : Impl::complete_language_model(model))
    diagnostics.error(place, fmt::format("'{}' {}", fault.key, fault.message));
  if (!diagnostics.empty()) throw FileError(diagnostics.report());
  return model;
}

/// The keys in the text of the file at `path`, with nothing derived.
LanguageModelTable keys_in(std::string text, const std::filesystem::path& path) {
  const auto source =
      std::make_shared<SourceText>(SourceText{.name = path.string(), .directory = {}, .text = std::move(text)});
  Diagnostics diagnostics;
  auto config = parse_config(source, diagnostics);
  if (!config) throw FileError(diagnostics.report());
  LanguageModelTable model = keys_of(std::move(*config), source->name);
  model.config = std::filesystem::absolute(path).lexically_normal();
  return model;
}

}  // namespace

std::vector<ModelFault> Impl::complete_language_model(LanguageModelTable& model) {
  auto faults = complete_model(model);
  for (const auto& [key, ids] :
       {std::pair("bos_token_id", &model.bos_token_ids), std::pair("eos_token_id", &model.eos_token_ids)})
    for (const std::int64_t id : *ids)
      if (id >= model.vocab_size)
        faults.push_back({key, fmt::format("= {} is not below vocab_size = {}", id, model.vocab_size)});
  const auto names = all_names();
  model.known = {names.begin(), names.end()};
  return faults;
}

LanguageModelTable Impl::model_of_config(json config, const std::string& source) {
  return completed(keys_of(std::move(config), source), source);
}

LanguageModelTable Impl::parse_model_config(std::string text, const std::filesystem::path& path) {
  return completed(keys_in(std::move(text), path), path.string());
}

LanguageModelTable Impl::read_model_keys(const std::filesystem::path& path) {
  return keys_in(read_file(path, max_text_bytes), path);
}

LanguageModelTable read_model_config(const std::filesystem::path& path) {
  return Impl::parse_model_config(read_file(path, max_text_bytes), path);
}

}  // namespace kformer
