// SPDX-License-Identifier: MIT
#include "text/hf/node.hpp"

#include "io/json_depth.hpp"
#include "text/base/file.hpp"

namespace kformer::Impl::tokenizers {

nlohmann::json Node::parse(const std::string& text, const std::string& file) {
  constexpr int deepest = 64;
  if (!is_shallow_json(text, deepest))
    refuse(file, "it is nested deeper than " + std::to_string(deepest) + " levels");
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    // The parser quotes the offending text, which can be most of the file.
    constexpr std::size_t most_quoted = 160;
    refuse(file, "not valid JSON: " + std::string(error.what()).substr(0, most_quoted));
  }
}

std::optional<Node> Node::find(const std::string& key) const {
  require_object();
  const auto member = m_json->find(key);
  if (member == m_json->end() || member->is_null()) return {};
  return Node(*member, m_file, m_name.empty() ? key : m_name + "." + key);
}

Node Node::at(const std::string& key) const {
  if (const auto member = find(key)) return *member;
  refuse(m_file, (m_name.empty() ? "it" : m_name) + " has no '" + key + "'");
}

std::string Node::text() const {
  if (!m_json->is_string()) expected("a text");
  return m_json->get<std::string>();
}

bool Node::boolean() const {
  if (!m_json->is_boolean()) expected("true or false");
  return m_json->get<bool>();
}

std::int64_t Node::integer() const {
  if (!m_json->is_number_integer() ||
      (m_json->is_number_unsigned() && m_json->get<std::uint64_t>() > INT64_MAX))
    expected("a 64-bit integer");
  return m_json->get<std::int64_t>();
}

std::vector<Node> Node::elements() const {
  if (!m_json->is_array()) expected("an array");
  std::vector<Node> nodes;
  nodes.reserve(m_json->size());
  for (const auto& element : *m_json)
    nodes.emplace_back(element, m_file, m_name + "[" + std::to_string(nodes.size()) + "]");
  return nodes;
}

std::string Node::text_of(const std::string& key, const std::string& otherwise) const {
  const auto member = find(key);
  return member ? member->text() : otherwise;
}

bool Node::boolean_of(const std::string& key, bool otherwise) const {
  const auto member = find(key);
  return member ? member->boolean() : otherwise;
}

const Node& Node::require_object() const {
  if (!m_json->is_object()) expected("an object");
  return *this;
}

void Node::expected(const std::string& what) const {
  refuse(m_file, (m_name.empty() ? "it" : m_name) + " is " + m_json->type_name() + ", expected " + what);
}

void Node::unsupported(const std::string& why) const { tokenizers::unsupported(m_file, m_name, why); }

}  // namespace kformer::Impl::tokenizers
