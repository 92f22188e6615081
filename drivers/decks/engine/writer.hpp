// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/schema/key.hpp"
#include "io/schema/toml_text.hpp"

namespace kformer::Impl::schema {

/// The visitor that writes a deck as canonical TOML.
class Writer {
 public:
  /// \param name of the table, empty for the top level
  explicit Writer(std::string name = {}) : m_name(std::move(name)) {}

  template <class T>
  void key(const Key& key, const T& member) {
    if (key.consumed || !wanted(key.name)) return;
    if constexpr (IsVector<T>::value || std::is_same_v<T, std::filesystem::path>)
      if (member.empty()) return;
    if constexpr (IsOptional<T>::value)
      if (!member) return;
    m_keys += std::string(key.name) + " = " + toml_text(member) + "\n";
  }

  template <class T>
  void table(const TableKey& key, T& member) {
    if (wanted(key.name)) m_tables += text_of(qualified(key), member, "[" + qualified(key) + "]");
  }

  template <class T>
  void table(const TableKey& key, std::optional<T>& member) {
    if (member) table(key, *member);
  }

  template <class T>
  void list(const TableKey& key, std::vector<T>& members) {
    for (auto& member : members) m_tables += text_of(qualified(key), member, "[[" + qualified(key) + "]]");
  }

  /// Keys first, then the tables below: any other order would move keys into a table.
  std::string text() const { return m_keys + m_tables; }

 private:
  bool wanted(const char* name) const { return m_only == nullptr || m_only->count(name) > 0; }
  std::string qualified(const TableKey& key) const {
    return m_name.empty() ? key.name : m_name + "." + key.name;
  }

  template <class T>
  static std::string text_of(const std::string& name, T& member, const std::string& heading) {
    Writer writer(name);
    if constexpr (requires { member.known; }) writer.m_only = &member.known;
    describe(writer, member);
    return "\n" + heading + "\n" + writer.text();
  }

  std::string m_name;
  std::string m_keys;
  std::string m_tables;
  const std::set<std::string>* m_only = nullptr;
};

}  // namespace kformer::Impl::schema
