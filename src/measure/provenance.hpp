// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "kformer/io/result_file.hpp"

namespace kformer::measure {

/// The program's version, e.g. `kformer-layer 0.1.0 (1a2b3c4d)`.
std::string version_line(const std::string& program);

/// The Kokkos this program was built with, one line per fact; works without Kokkos::initialize.
std::string kokkos_summary();

/// ISO 8601 in UTC.
std::string utc_now();

/// Root attributes and the group /provenance of a result file: what ran, and on which machine. Before Kokkos::initialize
/// it declares what Kokkos has to say, without saying it.
void write_provenance(ResultFile& file, const std::string& kind, const std::string& run_name,
                      const std::vector<std::string>& command_line);

/// Adds to /provenance which deck ran: its text, every key with its value, and one `--set` per line.
void write_deck(ResultFile& file, const std::string& text, const std::string& resolved,
                const std::vector<std::string>& overrides);

}  // namespace kformer::measure
