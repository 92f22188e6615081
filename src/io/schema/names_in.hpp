// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "io/schema/key.hpp"

namespace kformer::Impl::schema {

/// The names of the keys and tables that are described for a table.
struct NameCollector {
  std::vector<std::string> names{};

  template <class T>
  void key(const Key& key, const T&) {
    names.emplace_back(key.name);
  }
  template <class T>
  void table(const TableKey& key, const T&) {
    names.emplace_back(key.name);
  }
  template <class T>
  void list(const TableKey& key, const T&) {
    names.emplace_back(key.name);
  }
};

template <class T>
std::vector<std::string> names_in() {
  T table;
  NameCollector collector;
  describe(collector, table);
  return collector.names;
}

}  // namespace kformer::Impl::schema
