// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "first_contact/device.hpp"

namespace kformer::FirstContact {

/// What the command line asks for.
struct Choice {
  std::string only = {};  ///< text that the line of a case must have
  bool first = false;     ///< only the first case of each kernel
  bool times = true;      ///< calls are timed, too
};

/// Says of each case of a kernel whether it is right, and how long a call takes: one line each.
class Report {
 public:
  Report(Device device, const Choice& choice) : m_device(std::move(device)), m_choice(choice) {}

  const Device& device() const { return m_device; }
  /// Whether the kernels that need exactly this capability run here.
  bool has_warpgroups() const { return m_device.capability == 90; }

  /// Whether a case is asked for: its operands cost time.
  bool wants(const std::string& kernel, const std::string& what) const;

  /// Launches, waits, and judges: `judge` returns what is wrong, or nothing.
  /// \throws Error if the device takes no more work
  void check(const std::string& kernel, const std::string& what, const std::function<void()>& launch,
             const std::function<std::string()>& judge);

  /// The last line. \return the code with which the program ends
  int end() const;

 private:
  Device m_device;
  Choice m_choice;
  std::set<std::string> m_kernels;  // that had a case
  int m_right = 0, m_wrong = 0;
};

// The cases, by block.
void check_attention(Report& report);
void check_rms_norm(Report& report);
void check_rope(Report& report);
void check_swiglu(Report& report);
void check_cross_entropy(Report& report);
void check_adamw(Report& report);
void check_linear(Report& report);
void check_quantized(Report& report);
void check_embedding(Report& report);

}  // namespace kformer::FirstContact
