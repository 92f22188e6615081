// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include "kformer/core/error.hpp"
#include "kformer/memory/ledger.hpp"
#include "measure/memory_available.hpp"

namespace kformer::drivers {

/// Checks that the execution space of a case has the memory that the case needs.
/// \param program  name of the driver
/// \param bytes    forecast for the case
/// \param forecast `forecast(shorter)` gives the bytes of a case with a shorter sequence
/// \throws OutOfMemory with the longest sequence that fits
template <class Case, class Forecast>
void require_memory(const char* program, const Case& point, std::size_t bytes, const Forecast& forecast) {
  const auto available = measure::memory_available(point.execution_space);
  if (!available || bytes <= *available) return;
  const auto fits = measure::largest_seq_len(point.seq_len, [&](std::int64_t seq_len) {
    Case shorter = point;
    shorter.seq_len = seq_len;
    return forecast(shorter) <= *available;
  });
  throw OutOfMemory(
      fmt::format("{}: the case needs {}, but only {} is available; with batch {} the longest sequence that "
                  "fits is {}",
                  program, format_bytes(bytes), format_bytes(*available), point.batch, fits));
}

}  // namespace kformer::drivers
