// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "kformer/core/kernel_list.hpp"

/// \file
/// Errors in the middle of calls.

namespace kformer::Testing {

/// What an `Interruption` throws.
struct Interrupted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws in place of the n-th kernel of a function, as a call does that finds an error in the middle of its work.
class Interruption final : public KernelObserver {
 public:
  Interruption(std::string function, int call)
      : m_function(std::move(function)), m_left(call), m_previous(set_kernel_observer(this)) {}
  ~Interruption() override { set_kernel_observer(m_previous); }
  Interruption(const Interruption&) = delete;             ///< it is a scope
  Interruption& operator=(const Interruption&) = delete;  ///< it is a scope

  void chosen(const char*, const char* function, const char*) override {
    if (m_function == function && --m_left == 0) throw Interrupted("interrupted");
  }

 private:
  std::string m_function;
  int m_left;
  KernelObserver* m_previous;
};

}  // namespace kformer::Testing
