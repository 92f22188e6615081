// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kformer::drivers {

/// Bytes that can still be allocated on the space of that name without swapping or failing; nothing if the
/// system does not say. Of a GPU, after its memory pool gave back what no block uses.
std::optional<std::size_t> memory_available(const std::string& space);

/// The memory of a GPU at one moment.
struct DeviceMemory {
  std::uint64_t used = 0;           ///< bytes in use by all processes together
  std::uint64_t pool_reserved = 0;  ///< of these, bytes that the memory pool of blocks holds, in use or not
};

/// The memory of the GPU that Kokkos runs on, as the device's own management library says and as its pool says;
/// nothing where there is no such GPU or no such library.
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

}  // namespace kformer::drivers
