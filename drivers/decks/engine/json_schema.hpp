// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <vector>

#include "decks/engine/description.hpp"
#include "io/schema/key.hpp"

namespace kformer::Impl::schema {

using Json = nlohmann::ordered_json;

inline Json json_of(const std::filesystem::path& value) { return value.string(); }
template <class T>
Json json_of(const T& value) {
  if constexpr (std::is_enum_v<T>)
    return name_of(value);
  else
    return value;
}
template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? json_of(*value) : Json();
}
template <class T>
Json json_of(const std::vector<T>& values) {
  Json array = Json::array();
  for (const auto& value : values) array.push_back(json_of(value));
  return array;
}

/// The schema of one key, without its default.
Json json_schema_of(const Key& key, const Type& type);

/// The visitor that describes a deck as a JSON Schema.
class JsonSchema : public Description<JsonSchema> {
 public:
  using Description<JsonSchema>::table;

  template <class T>
  void key(const Key& key, const T& member) {
    Json schema = json_schema_of(key, type_of<T>(key));
    const Json value = json_of(member);
    const bool unset = value.is_null() || (value.is_array() && value.empty());
    if (!key.required && !unset && key.default_text[0] == '\0') schema["default"] = value;
    m_properties[key.name] = std::move(schema);
    if (key.required) m_required.push_back(key.name);
  }

  template <class T>
  void table(const TableKey& key, T& member) {
    JsonSchema below;
    describe(below, member);
    m_properties[key.name] = below.object(key.help);
  }

  template <class T>
  void list(const TableKey& key, std::vector<T>&) {
    T member;
    JsonSchema below;
    describe(below, member);
    m_properties[key.name] = {{"type", "array"}, {"items", below.object(key.help)}};
  }

  /// The schema of the table that was visited.
  Json object(const char* help) const;

 private:
  Json m_properties = Json::object();
  Json m_required = Json::array();
};

}  // namespace kformer::Impl::schema
