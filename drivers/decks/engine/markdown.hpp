// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "decks/engine/description.hpp"
#include "io/schema/key.hpp"
#include "io/schema/names_in.hpp"
#include "io/schema/toml_text.hpp"

namespace kformer::Impl::schema {

/// A row of the table of keys; `default_value` is TOML, empty if there is none to show.
std::string markdown_row(const Key& key, const Type& type, const std::string& default_value);

/// The heading of a table of the deck, and the head of its table of keys.
std::string markdown_heading(const std::string& name, const char* help);

/// The section of an array of points that have the axes `names`.
std::string markdown_list(const std::string& name, const char* help, const std::vector<std::string>& names);

/// The visitor that documents a deck as Markdown.
class Markdown : public Description<Markdown> {
 public:
  using Description<Markdown>::table;

  /// \param name of the table, empty for the top level
  explicit Markdown(std::string name = {}) : m_name(std::move(name)) {}

  template <class T>
  void key(const Key& key, const T& member) {
    m_rows += markdown_row(key, type_of<T>(key), toml_text(member));
  }

  template <class T>
  void table(const TableKey& key, T& member) {
    Markdown below(qualified(key));
    describe(below, member);
    m_sections += markdown_heading(qualified(key), key.help) + below.text();
  }

  template <class T>
  void list(const TableKey& key, std::vector<T>&) {
    if (key.of_axes) {
      m_sections += markdown_list(qualified(key), key.help, names_in<T>());
      return;
    }
    Markdown below(qualified(key));
    T member;
    describe(below, member);
    m_sections += markdown_heading("[" + qualified(key) + "]", key.help) + below.text();
  }

  std::string text() const { return m_rows + m_sections; }

 private:
  std::string qualified(const TableKey& key) const {
    return m_name.empty() ? key.name : m_name + "." + key.name;
  }

  std::string m_name;
  std::string m_rows;
  std::string m_sections;
};

}  // namespace kformer::Impl::schema
