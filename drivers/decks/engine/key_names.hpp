// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "decks/engine/description.hpp"
#include "io/schema/key.hpp"

namespace kformer::Impl::schema {

/// The visitor that lists the keys of a deck with their tables: "generate.dtype".
class KeyNames : public Description<KeyNames> {
 public:
  using Description<KeyNames>::table;

  template <class T>
  void key(const Key& key, const T&) {
    m_names.push_back(m_table + key.name);
  }

  template <class T>
  void table(const TableKey& key, T& member) {
    const std::string around = m_table;
    m_table += std::string(key.name) + ".";
    describe(*this, member);
    m_table = around;
  }

  template <class T>
  void list(const TableKey& key, std::vector<T>&) {
    if (key.of_axes) return;  // its keys are those of the table around it
    T member;
    table(key, member);
  }

  const std::vector<std::string>& names() const { return m_names; }

 private:
  std::string m_table;
  std::vector<std::string> m_names;
};

}  // namespace kformer::Impl::schema
