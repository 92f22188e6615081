// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace kformer::Impl::tokenizers {

/// A place in a JSON file, which knows name in error texts.
class Node {
 public:
  /// \throws FileError if `text` is not JSON, or nested deeper than any published file
  static nlohmann::json parse(const std::string& text, const std::string& file);

  Node(const nlohmann::json& json, std::string file, std::string name = {})
      : m_json(&json), m_file(std::move(file)), m_name(std::move(name)) {}

  const nlohmann::json& json() const { return *m_json; }
  const std::string& file() const { return m_file; }
  /// "model.vocab"
  const std::string& name() const { return m_name; }

  /// The member `key`, if it is there and not null.
  /// \throws FileError if this is not an object
  std::optional<Node> find(const std::string& key) const;
  /// The member `key`.
  /// \throws FileError if it is not there
  Node at(const std::string& key) const;

  /// \throws FileError if this is something else
  std::string text() const;
  bool boolean() const;
  std::int64_t integer() const;
  std::vector<Node> elements() const;

  /// A member, or its default if it is absent.
  std::string text_of(const std::string& key, const std::string& otherwise) const;
  bool boolean_of(const std::string& key, bool otherwise) const;

  /// Requires an object.
  const Node& require_object() const;
  /// \throws FileError "<name> is <what it is>, expected <what>"
  [[noreturn]] void expected(const std::string& what) const;
  /// \throws NotSupported naming this place
  [[noreturn]] void unsupported(const std::string& why) const;

 private:
  const nlohmann::json* m_json;
  std::string m_file, m_name;
};

}  // namespace kformer::Impl::tokenizers
