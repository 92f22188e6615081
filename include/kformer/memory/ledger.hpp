// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kformer/core/error.hpp"
#include "kformer/core/scalar.hpp"
#include "kformer/memory/format_bytes.hpp"
#include "kformer/memory/memory_class.hpp"
#include "kformer/memory/memory_timeline.hpp"
#include "kformer/memory/pool.hpp"

/// \file
/// The memory ledger: every byte the library takes is booked under a class and freed when its block is
/// destroyed.

namespace kformer {

class Ledger;

/// A piece of memory of one class, booked in a ledger during its lifetime. Movable, not copyable.
template <class MemorySpace>
class MemoryBlock {
 public:
  MemoryBlock() = default;
  ~MemoryBlock() { release(); }
  /// Takes over the booking.
  MemoryBlock(MemoryBlock&& other) noexcept { swap(other); }
  /// Takes over the booking; frees the block that was held before.
  MemoryBlock& operator=(MemoryBlock&& other) noexcept {
    MemoryBlock(std::move(other)).swap(*this);
    return *this;
  }
  MemoryBlock(const MemoryBlock&) = delete;             ///< a byte is booked once
  MemoryBlock& operator=(const MemoryBlock&) = delete;  ///< a byte is booked once

  /// First byte; null if the ledger only counts.
  std::byte* data() const { return m_memory.get(); }
  /// An array of type T that starts `offset` bytes into the block; null if the ledger only counts.
  template <class T>
  T* at(std::size_t offset) const {
    return data() == nullptr ? nullptr : reinterpret_cast<T*>(data() + offset);
  }
  /// Booked bytes.
  std::size_t bytes() const { return m_bytes; }

 private:
  friend class Ledger;
  void release();
  void swap(MemoryBlock& other) noexcept {
    std::swap(m_ledger, other.m_ledger);
    std::swap(m_class, other.m_class);
    std::swap(m_bytes, other.m_bytes);
    std::swap(m_memory, other.m_memory);
  }

  std::shared_ptr<Ledger> m_ledger;
  MemoryClass m_class = MemoryClass::workspace;
  std::size_t m_bytes = 0;
  PooledMemory m_memory;
};

/// What was moved from one memory space to another.
struct TransferCount {
  std::string from;             ///< name of the memory space that was read
  std::string to;               ///< name of the memory space that was written
  std::uint64_t transfers = 0;  ///< calls of `transfer`
  std::uint64_t bytes = 0;      ///< of all of them
};

/// Current and peak bytes, by class, by memory space and in total. Shared by the blocks booked in it, so it
/// outlives them. Any thread may query it at any time, also while another thread books.
class Ledger : public std::enable_shared_from_this<Ledger> {
 public:
  /// Whether blocks get memory or are only counted: a forecast by the same code, without memory.
  enum class Mode { allocate, count };

  /// The limit of a ledger that has none.
  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

  /// A new ledger.
  /// \param mode   whether blocks get memory
  /// \param limit  bytes that may be booked at a time; a block that would pass it is refused before anything
  ///               is allocated
  /// \param space  the memory space that the limit is for, by its `name()`; empty: all spaces together. A
  ///               budget of device memory does not count what lies in host memory.
  static std::shared_ptr<Ledger> create(Mode mode = Mode::allocate, std::size_t limit = no_limit,
                                        std::string_view space = {}) {
    return std::shared_ptr<Ledger>(new Ledger(mode, limit, space));
  }

  /// Whether blocks are only counted.
  bool counts_only() const { return m_mode == Mode::count; }

  /// A block of `bytes` bytes for work that is launched on `exec` after the call, labelled for Kokkos Tools.
  /// Its content is undefined. When it is destroyed, work launched on `exec` before may still use it; on CUDA
  /// nothing waits for that work.
  /// \throws OutOfMemory with the ledger, if the memory cannot be allocated or would pass the limit
  template <class Exec>
  [[nodiscard]] MemoryBlock<typename Exec::memory_space> allocate(const Exec& exec, MemoryClass memory_class,
                                                                  const std::string& label, std::size_t bytes) {
    using Space = typename Exec::memory_space;
    return allocate_by<Space>(memory_class, label, bytes,
                              [&](const std::string& name) { return Pool<Space>::take(exec, name, bytes); });
  }

  /// The same for work on any instance. Its destructor waits for the work of the device.
  /// \throws OutOfMemory with the ledger, if the memory cannot be allocated or would pass the limit
  template <class MemorySpace>
  [[nodiscard]] MemoryBlock<MemorySpace> allocate(MemoryClass memory_class, const std::string& label,
                                                  std::size_t bytes) {
    return allocate_by<MemorySpace>(memory_class, label, bytes, [&](const std::string& name) {
      return Pool<MemorySpace>::take(name, bytes);
    });
  }

  /// Books memory that something else allocates after the call, until the block is destroyed, which has none.
  /// \throws OutOfMemory with the ledger, if the bytes would pass the limit
  template <class MemorySpace>
  [[nodiscard]] MemoryBlock<MemorySpace> book_elsewhere(MemoryClass memory_class, const std::string& label,
                                                        std::size_t bytes) {
    MemoryBlock<MemorySpace> block = booked<MemorySpace>(memory_class, label, bytes);
    confirm();
    return block;
  }

  /// Current bytes of a class.
  std::size_t current(MemoryClass memory_class) const;
  /// Peak bytes of a class since the last `reset_peaks`.
  std::size_t peak(MemoryClass memory_class) const;
  /// Current bytes of all classes in a memory space, by its `name()`.
  std::size_t current_in(std::string_view space) const;
  /// Peak bytes of all classes together in a memory space since the last `reset_peaks`.
  std::size_t peak_in(std::string_view space) const;
  /// Current bytes of all classes.
  std::size_t current_total() const;
  /// Peak bytes of all classes together since the last `reset_peaks`.
  std::size_t peak_total() const;
  /// Resets the peaks to the current bytes.
  void reset_peaks();
  /// A table of the classes in use, and of the memory spaces if there are several: current and peak.
  std::string report() const;

  /// From now on records every change.
  /// \param places  entries at most, see MemoryTimeline
  void record_timeline(std::size_t places = 4096);
  /// The changes since `record_timeline`; empty without it.
  std::vector<MemoryMoment> timeline() const;

  /// Counts a transfer between memory spaces; `transfer` does it.
  void book_transfer(std::string_view from, std::string_view to, std::size_t bytes);
  /// What was transferred, one entry for each pair of spaces.
  std::vector<TransferCount> transfers() const;

 private:
  template <class MemorySpace>
  friend class MemoryBlock;
  struct Count {
    std::size_t current = 0, peak = 0;
  };

  Ledger(Mode mode, std::size_t limit, std::string_view space)
      : m_mode(mode), m_limit(limit), m_limited_space(space) {}
  static std::size_t index(MemoryClass c) { return static_cast<std::size_t>(c); }
  // A block without memory. Its destructor cancels the booking if the allocation fails.
  template <class MemorySpace>
  MemoryBlock<MemorySpace> booked(MemoryClass memory_class, const std::string& label, std::size_t bytes) {
    book(MemorySpace::name(), memory_class, label, bytes);
    MemoryBlock<MemorySpace> block;
    block.m_ledger = shared_from_this();
    block.m_class = memory_class;
    block.m_bytes = bytes;
    return block;
  }
  template <class MemorySpace, class Take>
  MemoryBlock<MemorySpace> allocate_by(MemoryClass memory_class, const std::string& label, std::size_t bytes,
                                       Take take) {
    auto block = booked<MemorySpace>(memory_class, label, bytes);
    if (m_mode == Mode::allocate && bytes > 0) {
      block.m_memory = take("kformer::" + label);
      if (!block.m_memory) {
        block = {};
        throw_out_of_memory(MemorySpace::name(), memory_class, label, bytes);
      }
    }
    confirm();
    return block;
  }
  void book(const char* space, MemoryClass memory_class, const std::string& label, std::size_t bytes);
  void confirm();
  void give_back(const char* space, MemoryClass memory_class, std::size_t bytes);
  [[noreturn]] void throw_out_of_memory(const char* space, MemoryClass memory_class, const std::string& label,
                                        std::size_t bytes) const;
  // Callers of the following functions hold the mutex.
  Count in(std::string_view space) const;
  void record();
  std::string table() const;

  const Mode m_mode;
  const std::size_t m_limit;
  const std::string m_limited_space;
  const std::chrono::steady_clock::time_point m_start = std::chrono::steady_clock::now();
  mutable std::mutex m_mutex;  // guards what follows
  std::array<Count, memory_classes> m_classes;
  std::map<std::string, Count, std::less<>> m_spaces;
  Count m_total;
  std::optional<MemoryTimeline> m_timeline;
  std::vector<TransferCount> m_transfers;
};

template <class MemorySpace>
void MemoryBlock<MemorySpace>::release() {
  if (!m_ledger) return;
  m_memory.reset();
  m_ledger->give_back(MemorySpace::name(), m_class, m_bytes);
  m_ledger.reset();
}

/// The product of extents, none of them negative.
/// \throws OutOfMemory if it does not fit in 64 bits
std::int64_t checked_product(std::initializer_list<std::int64_t> extents);

/// Bytes of a dense array of T with these extents.
/// \throws OutOfMemory if they do not fit in 64 bits
template <class T>
std::size_t array_bytes(std::initializer_list<std::int64_t> extents) {
  return static_cast<std::size_t>(checked_product({checked_product(extents), std::int64_t(sizeof(T))}));
}

/// Places arrays one after another in one block: offsets are multiples of 64 bytes, and `rewind` lets arrays
/// that are never alive together share a place.
class MemoryLayout {
 public:
  /// Room for `count` elements of type T; returns the byte offset.
  /// \throws OutOfMemory if the bytes do not fit in 64 bits
  template <class T>
  std::size_t reserve(std::int64_t count) {
    return reserve_bytes(checked_product({count, static_cast<std::int64_t>(sizeof(T))}));
  }
  /// Where the next array goes.
  std::size_t next() const { return m_next; }
  /// The next array goes to `offset`, over whatever was placed there.
  void rewind(std::size_t offset) { m_next = offset; }
  /// Bytes the block needs.
  std::size_t bytes() const { return m_bytes; }

 private:
  std::size_t reserve_bytes(std::int64_t bytes);

  std::size_t m_next = 0, m_bytes = 0;
};

}  // namespace kformer
