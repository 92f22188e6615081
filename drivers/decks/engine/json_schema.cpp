// SPDX-License-Identifier: MIT
#include "decks/engine/json_schema.hpp"

#include <fmt/format.h>

#include <cmath>

namespace kformer::Impl::schema {
namespace {

const char* type_name(Kind kind) {
  switch (kind) {
    case Kind::boolean:
      return "boolean";
    case Kind::integer:
      return "integer";
    case Kind::real:
      return "number";
    case Kind::path:
    case Kind::string:
    case Kind::bytes:
      break;
  }
  return "string";
}

// An integer bound is written as one: editors show it in their messages.
Json bound(double value, Kind kind) {
  return kind == Kind::integer || kind == Kind::bytes ? Json(std::llround(value)) : Json(value);
}

Json single_value(const Key& key, const Type& type) {
  Json schema{{"type", type_name(type.kind)}};
  if (type.kind == Kind::bytes) schema["type"] = Json::array({"integer", "string"});
  if (!type.choices.empty()) schema["enum"] = type.choices;
  if (key.range.min)
    schema[key.range.above ? "exclusiveMinimum" : "minimum"] = bound(*key.range.min, type.kind);
  if (key.range.max) schema["maximum"] = bound(*key.range.max, type.kind);
  return schema;
}

}  // namespace

Json json_schema_of(const Key& key, const Type& type) {
  Json schema = single_value(key, type);
  if (type.list) {
    Json array{{"type", "array"}, {"items", schema}, {"minItems", 1}, {"uniqueItems", !key.repeatable}};
    schema = Json{{"oneOf", Json::array({schema, array})}};
  }
  schema["description"] = key.unit[0] == '\0' ? key.help : fmt::format("{} [{}]", key.help, key.unit);
  return schema;
}

Json JsonSchema::object(const char* help) const {
  Json schema{{"type", "object"}, {"description", help}, {"properties", m_properties}};
  if (!m_required.empty()) schema["required"] = m_required;
  schema["additionalProperties"] = false;
  return schema;
}

}  // namespace kformer::Impl::schema
