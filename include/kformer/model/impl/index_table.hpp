// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <memory>
#include <vector>

#include "kformer/memory/transfer.hpp"

/// \file
/// Lists of indices that the host writes and kernels read.

namespace kformer::Impl {

/// Indices on the host, with a copy in memory of `Exec`.
template <class Exec>
class IndexTable {
 public:
  using View =
      Kokkos::View<std::int32_t*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  IndexTable() = default;
  /// `ledger` counts the transfers. `copy` is where kernels read; null if nothing will ever be launched.
  IndexTable(Ledger& ledger, std::int32_t* copy, std::int64_t count)
      : m_ledger(ledger.shared_from_this()), m_host(static_cast<std::size_t>(count)), m_copy(copy) {}

  std::int32_t& operator[](std::int64_t i) { return m_host[static_cast<std::size_t>(i)]; }
  /// Copies the indices [first, first + count) to where kernels read them.
  void upload(const Exec& exec, std::int64_t first, std::int64_t count) {
    if (count == 0) return;
    transfer<typename Exec::memory_space, Kokkos::HostSpace>(
        exec, *m_ledger, m_copy + first, m_host.data() + first,
        static_cast<std::size_t>(count) * sizeof(std::int32_t));
  }
  View view(std::int64_t first, std::int64_t count) const {
    return View(m_copy + first, static_cast<std::size_t>(count));
  }
  std::int32_t* copy() const { return m_copy; }

 private:
  std::shared_ptr<Ledger> m_ledger;
  std::vector<std::int32_t> m_host;
  std::int32_t* m_copy = nullptr;
};

}  // namespace kformer::Impl
