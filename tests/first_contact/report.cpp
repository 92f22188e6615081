// SPDX-License-Identifier: MIT
#include "first_contact/report.hpp"

#include <cstdio>

#include "kformer/core/error.hpp"

namespace kformer::FirstContact {

bool Report::wants(const std::string& kernel, const std::string& what) const {
  if (m_choice.first && m_kernels.contains(kernel)) return false;
  return (kernel + ' ' + what).find(m_choice.only) != std::string::npos;
}

void Report::check(const std::string& kernel, const std::string& what, const std::function<void()>& launch,
                   const std::function<std::string()>& judge) {
  const std::string name = kernel + ' ' + what;
  m_kernels.insert(kernel);
  std::string why;
  double seconds = -1;
  try {
    launch();
    wait_for_device();
    why = judge();
    if (m_choice.times && why.empty()) seconds = seconds_of(launch);
  } catch (const Error& error) {  // after a fault in a kernel, CUDA refuses everything
    std::printf("WRONG %s: %s\n", name.c_str(), error.what());
    throw;
  }
  ++(why.empty() ? m_right : m_wrong);
  std::printf("%s %s", why.empty() ? "right" : "WRONG", name.c_str());
  if (seconds >= 0) std::printf(": %.4f ms", 1e3 * seconds);
  std::printf("%s%s\n", why.empty() ? "" : ": ", why.c_str());
  std::fflush(stdout);
}

int Report::end() const {
  if (m_right + m_wrong == 0) {
    std::printf("no case has \"%s\" in its line\n", m_choice.only.c_str());
    return 1;
  }
  std::printf("first contact: %d right, %d wrong\n", m_right, m_wrong);
  return m_wrong > 0 ? 1 : 0;
}

}  // namespace kformer::FirstContact
