// SPDX-License-Identifier: MIT
#include "app/session.hpp"

#include <fmt/format.h>

#include <cstdlib>

#include "app/resumed_run.hpp"
#include "app/start_kokkos.hpp"
#include "measure/provenance.hpp"

namespace kformer::drivers {

namespace {

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Session::DeviceCheck::DeviceCheck() { require_device(); }

Session::Session(const CommandLine& line, const std::string& program, const std::string& kind,
                 const RunTable& run, const OutputTable& output, const DeckRecord& record, std::FILE* log,
                 bool writes)
    : m_file(output_file_name(output.file,
                              {run.name, kind, measure::utc_now(), environment_value("SLURM_JOB_ID")}),
             {.overwrite = output.overwrite,
              .compression = static_cast<int>(output.compression),
              .resume = line.resume,
              .discard = !writes}),
      m_kokkos(start_kokkos(line.all.front(), line.kokkos, run.threads)) {
  measure::write_provenance(m_file, kind, run.name, line.all);
  measure::write_deck(m_file, record.text, record.resolved, line.deck.overrides);
  if (m_file.resumes()) resume_run(m_file);
  fmt::print(log, "{}\n{}", measure::version_line(program), measure::kokkos_summary());
}

}  // namespace kformer::drivers
