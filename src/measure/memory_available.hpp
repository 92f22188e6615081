// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

namespace kformer::measure {

/// Bytes that can still be allocated on the space of that name without swapping or failing; nothing if the
/// system does not report them. For a GPU, after its memory pool returned unused memory.
std::optional<std::size_t> memory_available(const std::string& space);

/// The same of the host: the least of what the system, the control groups of the process and its limit of the
/// address space leave.
/// \param root the folder that has the system's `proc` and `sys`
std::optional<std::size_t> host_memory_available(const std::filesystem::path& root = "/");

/// Whose memory a process allocates.
struct MemoryPlace {
  int machine = 0;           ///< a number that no other machine has
  std::int64_t device = -1;  ///< `device_address`

  friend bool operator==(const MemoryPlace&, const MemoryPlace&) = default;
};

/// The PCI address, as a number, of the GPU that Kokkos runs on; -1 if the space of that name allocates on the host, or the
/// GPU has none.
std::int64_t device_address(const std::string& space);

/// What one process may take of the free memory of its place, of which every other one there has as much.
/// \param all the places of all processes, this one among them
inline std::size_t part_of_memory(std::size_t free, const MemoryPlace& own, std::span<const MemoryPlace> all) {
  return free / static_cast<std::size_t>(std::max<std::ptrdiff_t>(1, std::ranges::count(all, own)));
}

/// The memory of a GPU at one moment.
struct DeviceMemory {
  std::uint64_t used = 0;           ///< bytes in use by all processes together
  std::uint64_t pool_reserved = 0;  ///< part of these that the library's memory pool holds, in use or not
};

/// The memory of the GPU that Kokkos runs on, as its management library and its pool report it;
/// empty without such a GPU or library.
std::optional<DeviceMemory> device_memory();

/// The largest length below `too_long` that fits, by bisection; 0 if none does.
template <class Fits>
std::int64_t largest_seq_len(std::int64_t too_long, Fits fits) {
  std::int64_t low = 0, high = too_long;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace kformer::measure
