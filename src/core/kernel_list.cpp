// SPDX-License-Identifier: MIT
#include "kformer/core/kernel_list.hpp"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace kformer {

namespace {
thread_local KernelObserver* observer = nullptr;
thread_local const std::string* scoped_choice = nullptr;

bool verbose() {
  const char* value = std::getenv("KFORMER_VERBOSE");
  return value != nullptr && std::string_view(value) != "" && std::string_view(value) != "0";
}
}  // namespace

KernelObserver* set_kernel_observer(KernelObserver* next) { return std::exchange(observer, next); }

ForcedKernels::ForcedKernels(std::string choice)
    : m_choice(std::move(choice)), m_previous(std::exchange(scoped_choice, &m_choice)) {}

ForcedKernels::~ForcedKernels() { scoped_choice = m_previous; }

namespace Impl {

std::string forced_kernel(const char* op, const char* function) {
  const char* value = std::getenv("KFORMER_KERNEL");
  std::string_view rest = scoped_choice ? *scoped_choice : std::string_view(value ? value : "");
  std::string by_op;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == rest.npos ? "" : rest.substr(comma + 1);
    const auto colon = item.find(':');
    if (colon == item.npos || colon + 1 == item.size())
      throw NotSupported("kformer: KFORMER_KERNEL must have the form OP:KERNEL[,OP:KERNEL...], got \"" +
                         std::string(item) + '"');
    if (item.substr(0, colon) == function) return std::string(item.substr(colon + 1));
    if (item.substr(0, colon) == op) by_op = item.substr(colon + 1);
  }
  return by_op;
}

void report_choice(const char* op, const char* function, const char* kernel) {
  if (observer) observer->chosen(op, function, kernel);
  if (verbose()) std::fprintf(stderr, "kformer::%s: %s runs\n", function, kernel);
}

void report_refusal(const char* function, const char* kernel, const std::string& reason) {
  if (verbose()) std::fprintf(stderr, "kformer::%s: %s refuses: %s\n", function, kernel, reason.c_str());
}

void throw_no_kernel(const char* function, const std::string& forced, const std::string& reasons) {
  std::string text = "kformer::";
  text += function;
  if (forced.empty())
    text += ": no kernel can do this: " + reasons;
  else if (reasons.empty())
    text += ": KFORMER_KERNEL asks for '" + forced + "', which this execution space does not have";
  else
    text += ": KFORMER_KERNEL asks for a kernel that refuses: " + reasons;
  throw NotSupported(text);
}

}  // namespace Impl
}  // namespace kformer
