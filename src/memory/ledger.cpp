// SPDX-License-Identifier: MIT
#include "kformer/memory/ledger.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace kformer {

namespace {

[[noreturn]] void throw_too_large(const std::string& what) {
  throw OutOfMemory("kformer::Ledger: " + what + " does not fit in 64 bits; make the extents smaller");
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

void Ledger::book(const char* space, MemoryClass memory_class, const std::string& label, std::size_t bytes) {
  const std::lock_guard lock(m_mutex);
  if (bytes > std::numeric_limits<std::size_t>::max() - m_total.current)
    throw_too_large("the sum of " + std::to_string(m_total.current) + " and " + std::to_string(bytes) +
                    " bytes");
  const bool limited = m_limited_space.empty() || m_limited_space == space;
  const std::size_t booked = m_limited_space.empty() ? m_total.current : in(space).current;
  if (limited && (booked > m_limit || bytes > m_limit - booked))
    throw OutOfMemory("kformer::Ledger: " + format_bytes(bytes) + " for '" + label + "' (" +
                      to_string(memory_class) + ") in memory space " + space + " would exceed the limit of " +
                      format_bytes(m_limit) + ", of which " + format_bytes(booked) +
                      " are booked; booked so far:\n" + table());
  m_classes[index(memory_class)].current += bytes;
  m_spaces[space].current += bytes;
  m_total.current += bytes;
}

void Ledger::confirm() {
  const std::lock_guard lock(m_mutex);
  const auto raise = [](Count& count) { count.peak = std::max(count.peak, count.current); };
  std::ranges::for_each(m_classes, raise);
  for (auto& [space, count] : m_spaces) raise(count);
  raise(m_total);
  record();
}

void Ledger::give_back(const char* space, MemoryClass memory_class, std::size_t bytes) {
  const std::lock_guard lock(m_mutex);
  m_classes[index(memory_class)].current -= bytes;
  m_spaces[space].current -= bytes;
  m_total.current -= bytes;
  record();
}

std::size_t Ledger::current(MemoryClass memory_class) const {
  const std::lock_guard lock(m_mutex);
  return m_classes[index(memory_class)].current;
}

std::size_t Ledger::peak(MemoryClass memory_class) const {
  const std::lock_guard lock(m_mutex);
  return m_classes[index(memory_class)].peak;
}

std::size_t Ledger::current_in(std::string_view space) const {
  const std::lock_guard lock(m_mutex);
  return in(space).current;
}

std::size_t Ledger::peak_in(std::string_view space) const {
  const std::lock_guard lock(m_mutex);
  return in(space).peak;
}

std::size_t Ledger::current_total() const {
  const std::lock_guard lock(m_mutex);
  return m_total.current;
}

std::size_t Ledger::peak_total() const {
  const std::lock_guard lock(m_mutex);
  return m_total.peak;
}

void Ledger::reset_peaks() {
  const std::lock_guard lock(m_mutex);
  const auto reset = [](Count& count) { count.peak = count.current; };
  std::ranges::for_each(m_classes, reset);
  for (auto& [space, count] : m_spaces) reset(count);
  reset(m_total);
}

std::string Ledger::report() const {
  const std::lock_guard lock(m_mutex);
  return table();
}

void Ledger::record_timeline(std::size_t places) {
  const std::lock_guard lock(m_mutex);
  m_timeline.emplace(places);
  record();
}

std::vector<MemoryMoment> Ledger::timeline() const {
  const std::lock_guard lock(m_mutex);
  return m_timeline ? m_timeline->moments() : std::vector<MemoryMoment>();
}

void Ledger::book_transfer(std::string_view from, std::string_view to, std::size_t bytes) {
  const std::lock_guard lock(m_mutex);
  auto entry = std::ranges::find_if(m_transfers, [&](auto& t) { return t.from == from && t.to == to; });
  if (entry == m_transfers.end()) entry = m_transfers.insert(entry, {std::string(from), std::string(to)});
  ++entry->transfers;
  entry->bytes += bytes;
}

std::vector<TransferCount> Ledger::transfers() const {
  const std::lock_guard lock(m_mutex);
  return m_transfers;
}

Ledger::Count Ledger::in(std::string_view space) const {
  const auto found = m_spaces.find(space);
  return found == m_spaces.end() ? Count() : found->second;
}

void Ledger::record() {
  if (!m_timeline) return;
  MemoryMoment now;
  now.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - m_start).count();
  std::ranges::transform(m_classes, now.bytes.begin(), &Count::current);
  now.total = m_total.current;
  m_timeline->add(now);
}

std::string Ledger::table() const {
  std::string text = "class          current       peak\n";
  const auto line = [&](const std::string& name, const Count& count) {
    char row[96];
    std::snprintf(row, sizeof row, "%-13s %10s %10s\n", name.c_str(), format_bytes(count.current).c_str(),
                  format_bytes(count.peak).c_str());
    text += row;
  };
  for (int c = 0; c < memory_classes; ++c)
    if (m_classes[c].peak > 0) line(to_string(static_cast<MemoryClass>(c)), m_classes[c]);
  if (m_spaces.size() > 1)
    for (const auto& [space, count] : m_spaces) line("in " + space, count);
  line("total", m_total);
  return text;
}

void Ledger::throw_out_of_memory(const char* space, MemoryClass memory_class, const std::string& label,
                                 std::size_t bytes) const {
  throw OutOfMemory("kformer::Ledger: " + format_bytes(bytes) + " for '" + label + "' (" +
                    to_string(memory_class) + ") could not be allocated in memory space " + space +
                    "; allocated so far:\n" + report());
}

}  // namespace kformer
