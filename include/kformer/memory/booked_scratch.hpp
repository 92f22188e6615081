// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "kformer/core/scratch.hpp"
#include "kformer/memory/ledger.hpp"

namespace kformer {

/// `reserve_scratch(exec, bytes)`, booked in a ledger as workspace: `bytes` for each thread of a host, 0 on
/// devices. With a ledger that only counts it reserves nothing. Keep the block as long as `exec`, with which Kokkos
/// frees the memory.
/// \param exec   the instance on which functions will be called
/// \param ledger that books it
/// \param bytes  per thread
/// \throws OutOfMemory with the ledger, if the bytes would pass its limit; nothing is reserved then
template <class Exec>
[[nodiscard]] MemoryBlock<typename Exec::memory_space> reserve_scratch(
    const Exec& exec, Ledger& ledger, std::size_t bytes = usual_scratch_bytes) {
  std::int64_t all = 0;
  if constexpr (Impl::is_host_space<Exec>)
    all = checked_product({exec.concurrency(), static_cast<std::int64_t>(bytes)});
  auto block = ledger.book_elsewhere<typename Exec::memory_space>(MemoryClass::workspace, "scratch",
                                                                  static_cast<std::size_t>(all));
  if (!ledger.counts_only()) reserve_scratch(exec, bytes);
  return block;
}

}  // namespace kformer
