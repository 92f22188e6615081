// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>

#include "kformer/core/kernel_list.hpp"

namespace kformer::measure {

/// Names the kernels of one case, each once, in the order they first ran.
class KernelNames final : public KernelObserver {
 public:
  KernelNames() : m_previous(set_kernel_observer(this)) {}
  ~KernelNames() override { set_kernel_observer(m_previous); }
  void chosen(const char*, const char* function, const char* kernel) override {
    const std::string entry = std::string(function) + ':' + kernel;
    if (m_seen.insert(entry).second) m_text += (m_text.empty() ? "" : " ") + entry;
  }
  /// "function:kernel function:kernel".
  const std::string& text() const { return m_text; }

 private:
  KernelObserver* m_previous;
  std::set<std::string> m_seen;
  std::string m_text;
};

}  // namespace kformer::measure
