// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "kformer/core/error.hpp"
#include "kformer/core/scalar.hpp"
#include "kformer/memory/pool.hpp"

/// \file
/// The memory ledger: every byte the library takes is booked under a class and freed when its block is
/// destroyed.

namespace kformer {

/// What memory is for.
enum class MemoryClass { weights, gradients, optimizer, activations, kv_cache, workspace, communication, io };

/// The number of memory classes.
inline constexpr int memory_classes = 8;

/// The class's name in files and messages.
const char* to_string(MemoryClass memory_class);

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

/// Current and peak bytes, by class and in total. Shared by the blocks booked in it, so it outlives them.
class Ledger : public std::enable_shared_from_this<Ledger> {
 public:
  /// Whether blocks get memory or are only counted: a forecast by the same code, without memory.
  enum class Mode { allocate, count };

  /// A new ledger.
  static std::shared_ptr<Ledger> create(Mode mode = Mode::allocate) {
    return std::shared_ptr<Ledger>(new Ledger(mode));
  }

  /// Whether blocks are only counted.
  bool counts_only() const { return m_mode == Mode::count; }

  /// A block of `bytes` bytes for work that is launched on `exec` after the call, labelled for Kokkos Tools.
  /// Its content is undefined. When it is destroyed, work launched on `exec` before may still use it; on CUDA
  /// nothing waits for that work.
  /// \throws OutOfMemory with the ledger, if the memory cannot be allocated
  template <class Exec>
  MemoryBlock<typename Exec::memory_space> allocate(const Exec& exec, MemoryClass memory_class,
                                                    const std::string& label, std::size_t bytes) {
    using Space = typename Exec::memory_space;
    return allocate_by<Space>(memory_class, label, bytes,
                              [&](const std::string& name) { return Pool<Space>::take(exec, name, bytes); });
  }

  /// The same for work on any instance. Its destructor waits for the work of the device.
  /// \throws OutOfMemory with the ledger, if the memory cannot be allocated
  template <class MemorySpace>
  MemoryBlock<MemorySpace> allocate(MemoryClass memory_class, const std::string& label, std::size_t bytes) {
    return allocate_by<MemorySpace>(memory_class, label, bytes, [&](const std::string& name) {
      return Pool<MemorySpace>::take(name, bytes);
    });
  }

  /// Current bytes of a class.
  std::size_t current(MemoryClass memory_class) const { return m_current[index(memory_class)]; }
  /// Peak bytes of a class since the last `reset_peaks`.
  std::size_t peak(MemoryClass memory_class) const { return m_peak[index(memory_class)]; }
  /// Current bytes of all classes.
  std::size_t current_total() const { return m_current_total; }
  /// Peak bytes of all classes together since the last `reset_peaks`.
  std::size_t peak_total() const { return m_peak_total; }
  /// Resets the peaks to the current bytes.
  void reset_peaks();
  /// A table of the classes in use: current and peak.
  std::string report() const;

 private:
  template <class MemorySpace>
  friend class MemoryBlock;
  explicit Ledger(Mode mode) : m_mode(mode) {}
  static std::size_t index(MemoryClass c) { return static_cast<std::size_t>(c); }
  template <class MemorySpace, class Take>
  MemoryBlock<MemorySpace> allocate_by(MemoryClass memory_class, const std::string& label, std::size_t bytes,
                                       Take take) {
    MemoryBlock<MemorySpace> block;
    if (m_mode == Mode::allocate && bytes > 0) {
      block.m_memory = take("kformer::" + label);
      if (!block.m_memory) throw_out_of_memory(MemorySpace::name(), memory_class, label, bytes);
    }
    book(memory_class, bytes);
    block.m_ledger = shared_from_this();
    block.m_class = memory_class;
    block.m_bytes = bytes;
    return block;
  }
  void book(MemoryClass memory_class, std::size_t bytes);
  void give_back(MemoryClass memory_class, std::size_t bytes);
  [[noreturn]] void throw_out_of_memory(const char* space, MemoryClass memory_class, const std::string& label,
                                        std::size_t bytes) const;

  Mode m_mode;
  std::array<std::size_t, memory_classes> m_current{}, m_peak{};
  std::size_t m_current_total = 0, m_peak_total = 0;
};

template <class MemorySpace>
void MemoryBlock<MemorySpace>::release() {
  if (!m_ledger) return;
  m_memory.reset();
  m_ledger->give_back(m_class, m_bytes);
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

/// `bytes` in words: `1.50 GiB`.
std::string format_bytes(std::size_t bytes);

}  // namespace kformer
