// SPDX-License-Identifier: MIT
#include "common/session.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "common/provenance.hpp"
#include "kformer/core/device.hpp"

namespace kformer::drivers {

namespace {

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::unique_ptr<Kokkos::ScopeGuard> start_kokkos(const CommandLine& line, std::int64_t threads) {
  std::vector<std::string> arguments{line.all.front()};
  arguments.insert(arguments.end(), line.kokkos.begin(), line.kokkos.end());
  if (threads > 0) arguments.push_back("--kokkos-num-threads=" + std::to_string(threads));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  return std::make_unique<Kokkos::ScopeGuard>(argc, argv.data());
}

}  // namespace

Session::DeviceCheck::DeviceCheck() {
  if (const std::string why = missing_device(); !why.empty()) throw NotSupported(why);
}

Session::Session(const CommandLine& line, const std::string& program, const std::string& kind,
                 const RunTable& run, const OutputTable& output, const DeckRecord& record, std::FILE* log)
    : m_file(output_file_name(output.file, {run.name, kind, utc_now(), environment_value("SLURM_JOB_ID")}),
             {output.overwrite, static_cast<int>(output.compression)}),
      m_kokkos(start_kokkos(line, run.threads)) {
  write_provenance(m_file, kind, run, record, line.deck.overrides, line.all);
  fmt::print(log, "{}\n{}", version_line(program), kokkos_summary());
}

}  // namespace kformer::drivers
