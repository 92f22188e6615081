// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "io/schema/key.hpp"

namespace kformer::Impl::schema {

/// What visitors share that describe decks without values: a table that may be absent is described like any other.
template <class Visitor>
class Description {
 public:
  template <class T>
  void table(const TableKey& key, std::optional<T>&) {
    T member;
    static_cast<Visitor*>(this)->table(key, member);
  }

 private:
  Description() = default;
  friend Visitor;
};

}  // namespace kformer::Impl::schema
