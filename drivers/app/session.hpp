// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdio>
#include <memory>
#include <string>

#include "app/command_line.hpp"
#include "kformer/io/result_file.hpp"

namespace kformer::drivers {

/// A run: its result file and Kokkos. It creates the file first, so that it detects an unwritable path before
/// any work.
class Session {
 public:
  /// Creates the file, starts Kokkos, writes the provenance, and prints to `log` what runs.
  /// \throws NotSupported if Kokkos was built for a device that this machine lacks
  /// \throws FileError if the file exists or cannot be written, or is that of another run than the one to resume
  /// \param writes whether this process writes the file, not another rank
  Session(const CommandLine& line, const std::string& program, const std::string& kind, const RunTable& run,
          const OutputTable& output, const DeckRecord& record, std::FILE* log = stdout, bool writes = true);

  /// The result file.
  ResultFile& file() { return m_file; }

 private:
  // First member: without its device a run leaves no file behind.
  struct DeviceCheck {
    DeviceCheck();
  };

  DeviceCheck m_device_check;
  ResultFile m_file;
  std::unique_ptr<Kokkos::ScopeGuard> m_kokkos;
};

}  // namespace kformer::drivers
