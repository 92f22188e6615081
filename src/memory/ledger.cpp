// SPDX-License-Identifier: MIT
#include "kformer/memory/ledger.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace kformer {

const char* to_string(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::weights:
      return "weights";
    case MemoryClass::gradients:
      return "gradients";
    case MemoryClass::optimizer:
      return "optimizer";
    case MemoryClass::activations:
      return "activations";
    case MemoryClass::kv_cache:
      return "kv_cache";
    case MemoryClass::workspace:
      return "workspace";
    case MemoryClass::communication:
      return "communication";
    case MemoryClass::io:
      return "io";
  }
  return "?";
}

std::string format_bytes(std::size_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

namespace {

[[noreturn]] void throw_too_large(const std::string& what) {
  throw OutOfMemory("kformer: " + what + " does not fit in 64 bits; make the extents smaller");
}

}  // namespace

std::int64_t checked_product(std::initializer_list<std::int64_t> extents) {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents)
    if (extent == 0) return 0;
  std::string factors;
  for (const std::int64_t extent : extents) factors += (factors.empty() ? "" : " x ") + std::to_string(extent);
  for (const std::int64_t extent : extents)
    if (__builtin_mul_overflow(product, extent, &product)) throw_too_large("the product " + factors);
  return product;
}

std::size_t MemoryLayout::reserve_bytes(std::int64_t bytes) {
  constexpr std::size_t alignment = 64, most = std::numeric_limits<std::int64_t>::max();
  const std::size_t offset = m_next, wanted = static_cast<std::size_t>(bytes);
  if (wanted > most - alignment - offset)
    throw_too_large("the sum of " + std::to_string(offset) + " and " + std::to_string(wanted) + " bytes");
  m_next += (wanted + alignment - 1) / alignment * alignment;
  m_bytes = std::max(m_bytes, m_next);
  return offset;
}

void Ledger::book(MemoryClass memory_class, std::size_t bytes) {
  const auto c = index(memory_class);
  if (bytes > std::numeric_limits<std::size_t>::max() - m_current_total)
    throw_too_large("the sum of " + std::to_string(m_current_total) + " and " + std::to_string(bytes) +
                    " bytes");
  m_current[c] += bytes;
  m_current_total += bytes;
  m_peak[c] = std::max(m_peak[c], m_current[c]);
  m_peak_total = std::max(m_peak_total, m_current_total);
}

void Ledger::give_back(MemoryClass memory_class, std::size_t bytes) {
  m_current[index(memory_class)] -= bytes;
  m_current_total -= bytes;
}

void Ledger::reset_peaks() {
  m_peak = m_current;
  m_peak_total = m_current_total;
}

std::string Ledger::report() const {
  std::string text = "class          current       peak\n";
  char line[96];
  for (int c = 0; c < memory_classes; ++c) {
    if (m_peak[c] == 0) continue;
    std::snprintf(line, sizeof line, "%-13s %10s %10s\n", to_string(static_cast<MemoryClass>(c)),
                  format_bytes(m_current[c]).c_str(), format_bytes(m_peak[c]).c_str());
    text += line;
  }
  std::snprintf(line, sizeof line, "%-13s %10s %10s\n", "total", format_bytes(m_current_total).c_str(),
                format_bytes(m_peak_total).c_str());
  return text + line;
}

void Ledger::throw_out_of_memory(const char* space, MemoryClass memory_class, const std::string& label,
                                 std::size_t bytes) const {
  throw OutOfMemory("kformer: " + format_bytes(bytes) + " for '" + label + "' (" + to_string(memory_class) +
                    ") could not be allocated in memory space " + space + "; allocated so far:\n" + report());
}

}  // namespace kformer
