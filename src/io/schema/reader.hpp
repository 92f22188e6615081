// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "io/schema/diagnostics.hpp"
#include "io/schema/key.hpp"
#include "io/schema/tree.hpp"

namespace kformer::Impl::schema {

/// The visitor that fills the members of a table from its entries and reports invalid ones.
class Reader {
 public:
  /// \param name the table in error texts: "model.rope_scaling", empty for the top level
  /// \param all_keys those of all tables, "generate.dtype", to say where a key belongs; may be null
  Reader(const Table& entries, Place place, std::string name, Diagnostics& diagnostics,
         const std::vector<std::string>* all_keys = nullptr);

  template <class T>
  void key(const Key& key, T& member) {
    if (const Entry* entry = given(key.name))
      read(entry->value, qualified(key.name), key, member);
    else if (key.required)
      report_missing(key, type_of<T>(key));
  }

  template <class T>
  void table(const TableKey& key, T& member) {
    const Entry* entry = given(key.name);
    if (entry != nullptr) read_table(entry->value, entry->place, qualified(key.name), member);
  }

  template <class T>
  void table(const TableKey& key, std::optional<T>& member) {
    const Entry* entry = given(key.name);
    if (entry != nullptr)
      read_table(entry->value, entry->place, qualified(key.name), member ? *member : member.emplace());
  }

  template <class T>
  void list(const TableKey& key, std::vector<T>& members) {
    const Entry* entry = given(key.name);
    if (entry == nullptr) return;
    const auto* elements = array_of_tables(*entry);
    if (elements == nullptr) return;
    for (std::size_t i = 0; i < elements->size(); ++i)
      read_table((*elements)[i], (*elements)[i].place, element_name(qualified(key.name), i),
                 members.emplace_back());
  }

  /// Reports the entries without a described key.
  void report_unknown() const;

  /// Names of the described keys that the table has.
  const std::set<std::string>& given_names() const { return m_given; }

 private:
  const Entry* given(const char* name);
  std::string qualified(const char* name) const;
  static std::string element_name(const std::string& name, std::size_t index);
  void report_missing(const Key& key, const Type& type) const;
  void report_type(const Value& value, const std::string& name, const Type& type, const Range& range) const;
  void report_duplicate(const Value& value, const std::string& name) const;
  void report_empty(const Value& value, const std::string& name) const;
  const Table* as_table(const Value& value, const Place& place, const std::string& name) const;
  const Array* array_of_tables(const Entry& entry) const;

  bool scalar(const Value& value, const std::string& name, const Key& key, const Type& type, bool& member);
  bool scalar(const Value& value, const std::string& name, const Key& key, const Type& type,
              std::int64_t& member);
  bool scalar(const Value& value, const std::string& name, const Key& key, const Type& type, double& member);
  bool scalar(const Value& value, const std::string& name, const Key& key, const Type& type,
              std::string& member);
  bool scalar(const Value& value, const std::string& name, const Key& key, const Type& type,
              std::filesystem::path& member);
  bool text_of_bytes(const Value& value, const std::string& name, const Key& key, const Type& type,
                     std::string& member);
  template <class Enum>
    requires std::is_enum_v<Enum>
  bool scalar(const Value& value, const std::string& name, const Key& key, const Type& type, Enum& member) {
    std::string text;
    if (!scalar(value, name, key, type, text)) return false;
    const auto choice = std::find(type.choices.begin(), type.choices.end(), text);
    member = static_cast<Enum>(choice - type.choices.begin());
    return true;
  }

  template <class T>
  void read(const Value& value, const std::string& name, const Key& key, T& member) {
    scalar(value, name, key, type_of<T>(key), member);
  }

  template <class T>
  void read(const Value& value, const std::string& name, const Key& key, std::optional<T>& member) {
    T given{};
    if (scalar(value, name, key, type_of<T>(key), given)) member = given;
  }

  template <class T>
  void read(const Value& value, const std::string& name, const Key& key, std::vector<T>& members) {
    members.clear();
    const auto* elements = std::get_if<Array>(&value.data);
    if (elements == nullptr) {
      T member{};
      if (scalar(value, name, key, type_of<std::vector<T>>(key), member)) members.push_back(member);
      return;
    }
    if (elements->empty()) report_empty(value, name);
    const Type type = type_of<T>(key);
    for (std::size_t i = 0; i < elements->size(); ++i) {
      T member{};
      const std::string element = element_name(name, i);
      if (!scalar((*elements)[i], element, key, type, member)) continue;
      if (!key.repeatable && std::find(members.begin(), members.end(), member) != members.end())
        report_duplicate((*elements)[i], element);
      else
        members.push_back(member);
    }
  }

  template <class T>
  void read_table(const Value& value, const Place& place, const std::string& name, T& member) {
    const Table* entries = as_table(value, place, name);
    if (entries == nullptr) return;
    Reader reader(*entries, place, name, m_diagnostics, m_all_keys);
    describe(reader, member);
    reader.report_unknown();
    if constexpr (requires { member.known; }) member.known = reader.given_names();
  }

  const Table& m_entries;
  Place m_place;
  std::string m_name;
  Diagnostics& m_diagnostics;
  const std::vector<std::string>* m_all_keys;
  std::vector<std::string> m_described;
  std::set<std::string> m_given;
};

}  // namespace kformer::Impl::schema
