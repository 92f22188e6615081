// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "kformer/memory/launch_order.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/memory/transfer.hpp"

/// \file
/// Arrays of a device that wait in host memory until backward needs them.

namespace kformer {

namespace Impl {
/// Whether models on host spaces may offload, too: it saves nothing there, but lets tests without a device see that the
/// bits are the same.
inline bool hosts_may_offload = false;
}  // namespace Impl

/// Moves the states of a chain to host memory and back, while they take turns in two arrays of the device: state
/// `n` is in array `n mod 2`. Copies run on an instance of their own, beside the work of the chain.
///
///     for n = 0, 1, …:   save(exec, n, array[n % 2]);  launch what reads state n and writes array[(n + 1) % 2]
///     for n = …, 1, 0:   fetch(exec, n, array[n % 2], array[(n + 1) % 2]);  launch what reads state n
template <class Exec>
class OffloadedStates {
 public:
  using memory_space = typename Exec::memory_space;   ///< of the two arrays
  using host_space = HostStagingSpace<memory_space>;  ///< where states wait

  OffloadedStates() = default;
  /// Books and allocates host memory.
  /// \param ledger where memory and transfers are booked
  /// \param count  states
  /// \param bytes  of each
  /// \throws OutOfMemory with the ledger
  OffloadedStates(Ledger& ledger, std::int64_t count, std::size_t bytes)
      : m_ledger(ledger.shared_from_this()),
        m_bytes(bytes),
        m_block(ledger.allocate<host_space>(MemoryClass::activations, "OffloadedStates",
                                            static_cast<std::size_t>(count) * bytes)) {}

  /// States have so many bytes from now on, at most as many as those of the constructor. Forgets all that were saved.
  void use_bytes(std::size_t bytes) {
    m_bytes = bytes;
    m_holds = {-1, -1};
  }

  /// Launches the copy of state `n` to host memory. Work launched on `exec` afterwards may overwrite the other
  /// array, whose copy is complete by then, and read this one.
  /// \param exec  the instance that computes the states
  /// \param n     0, 1, …, in this order
  /// \param state its array
  void save(const Exec& exec, std::int64_t n, const void* state) {
    launch_after(exec, copies(exec));  // the copy of state n − 1, whose array is written next
    launch_after(copies(exec), exec);
    transfer<host_space, memory_space>(copies(exec), *m_ledger, slot(n), state, m_bytes);
    m_holds[array_of(n)] = n;
  }

  /// State `n` is in its array for work launched on `exec` afterwards, and the copy of state n − 1 to the other
  /// array is launched beside it.
  /// \param exec  the instance that reads the states
  /// \param n     from the last one downwards
  /// \param state the array of state n
  /// \param other the array of state n − 1; no work launched afterwards may use it before the next `fetch`
  void fetch(const Exec& exec, std::int64_t n, void* state, void* other) {
    bring(exec, n, state);
    launch_after(exec, copies(exec));
    if (n > 0) bring(exec, n - 1, other);
  }

 private:
  static std::size_t array_of(std::int64_t n) { return static_cast<std::size_t>(n % 2); }
  std::byte* slot(std::int64_t n) const {
    return m_block.data() ? m_block.data() + static_cast<std::size_t>(n) * m_bytes : nullptr;
  }
  // Two states are still in their arrays when backward begins.
  void bring(const Exec& exec, std::int64_t n, void* state) {
    if (m_holds[array_of(n)] == n) return;
    launch_after(copies(exec), exec);
    transfer<memory_space, host_space>(copies(exec), *m_ledger, state, slot(n), m_bytes);
    m_holds[array_of(n)] = n;
  }
  const Exec& copies(const Exec& exec) {
    if (!m_copies) m_copies = Kokkos::Experimental::partition_space(exec, 1)[0];
    return *m_copies;
  }

  std::shared_ptr<Ledger> m_ledger;
  std::size_t m_bytes = 0;
  MemoryBlock<host_space> m_block;
  std::optional<Exec> m_copies;
  std::array<std::int64_t, 2> m_holds{-1, -1};
};

}  // namespace kformer
