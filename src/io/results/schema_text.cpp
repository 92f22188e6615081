// SPDX-License-Identifier: MIT
#include "io/results/schema_text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace kformer::Impl {
namespace {

using Json = nlohmann::ordered_json;

const char* type_of(const Value& value) {
  static constexpr std::array names{"i8", "i32", "i64", "u64", "f64", "text"};
  return names.at(value.items().index());
}

const char* name_of(ColumnType type) {
  static constexpr std::array names{"f64", "i64", "i32", "u64", "flag", "text"};
  return names.at(static_cast<std::size_t>(type));
}

void add_condition(Json& entry, const std::string& when) {
  if (!when.empty()) entry["when"] = when;
}

Json entry_of(const char* type, std::vector<std::string> dims, const std::string& units,
              const std::string& description) {
  Json entry{{"type", type}, {"dims", std::move(dims)}};
  if (!units.empty()) entry["units"] = units;
  entry["description"] = description;
  return entry;
}

Json entry_of(const Column& column, const std::string& rows) {
  std::vector<std::string> dims{rows};
  if (!column.along.empty()) dims.push_back(column.along);
  Json entry = entry_of(name_of(column.type), std::move(dims),
                        column.type == ColumnType::text ? "" : column.units, column.long_name);
  if (!column.meanings.empty()) entry["meanings"] = column.meanings;
  if (column.fill) entry["fill"] = *column.fill;
  if (column.nan == NanAllowed::unless_ok) entry["nan"] = "unless ok";
  if (column.nan == NanAllowed::never) entry["nan"] = "never";
  add_condition(entry, column.when);
  return entry;
}

/// The coordinate of a dimension that is no column.
Json entry_of(const Table::Dimension& dimension) {
  const bool labels = !dimension.labels.empty();
  const char* type = labels ? "text" : dimension.numbers.empty() ? "i32" : "i64";
  return entry_of(type, {dimension.name}, labels ? "" : dimension.units, dimension.long_name);
}

Json attributes_of(const ResultGroup& group) {
  Json all = Json::object();
  for (const auto& [name, attribute] : group.attributes())
    all[name] = {{"type", type_of(attribute.value)}, {"description", attribute.description}};
  return all;
}

Json group_of(const ResultGroup& group, const Table* table) {
  Json entry = Json::object();
  if (table != nullptr) entry["rows"] = table->row_dimension().long_name;
  add_condition(entry, group.condition());
  entry["attributes"] = attributes_of(group);
  Json& datasets = entry["datasets"] = Json::object();
  for (const auto& [name, text] : group.texts()) datasets[name] = entry_of("text", {}, "", text.long_name);
  if (table == nullptr) return entry;
  const std::string& rows = table->row_dimension().name;
  const bool has_coordinate =
      std::ranges::any_of(table->columns(), [&](const Table::Data& data) { return data.column.name == rows; });
  if (!has_coordinate) datasets[rows] = entry_of(table->row_dimension());
  for (const auto& dimension : table->dimensions()) datasets[dimension.name] = entry_of(dimension);
  for (const auto& data : table->columns()) datasets[data.column.name] = entry_of(data.column, rows);
  return entry;
}

std::string text_attribute(const ResultContents& contents, const std::string& name) {
  const auto& attributes = contents.groups.at("").attributes();
  const auto place = attributes.find(name);
  return place == attributes.end() ? ""
                                   : std::get<std::vector<std::string>>(place->second.value.items()).front();
}

}  // namespace

std::string schema_text(const ResultContents& contents) {
  Json all{{"schema", text_attribute(contents, "schema")},
           {"schema_version", text_attribute(contents, "schema_version")},
           {"kind", text_attribute(contents, "kind")}};
  Json& groups = all["groups"] = Json::object();
  for (const auto& [path, group] : contents.groups) groups["/" + path] = group_of(group, nullptr);
  for (const auto& [path, table] : contents.tables) groups["/" + path] = group_of(table, &table);
  return all.dump(1) + "\n";
}

}  // namespace kformer::Impl
