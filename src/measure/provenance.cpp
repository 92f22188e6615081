// SPDX-License-Identifier: MIT
#include "measure/provenance.hpp"

#include <unistd.h>
#include <Kokkos_Core.hpp>

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <thread>

#include "measure/version.hpp"

extern char** environ;

namespace kformer::measure {

namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// Only variables that affect a run: an environment may contain secrets.
std::string environment() {
  static constexpr std::array prefixes{"OMP_",   "KOKKOS_",   "KFORMER_", "CUDA_VISIBLE_DEVICES",
                                       "SLURM_", "OPENBLAS_", "MKL_"};
  std::string text;
  for (char** entry = environ; *entry != nullptr; ++entry)
    for (const char* prefix : prefixes)
      if (std::string_view(*entry).starts_with(prefix)) text += std::string(*entry) + '\n';
  return text;
}

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const auto& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

std::string kokkos_version() {
  const int v = KOKKOS_VERSION;
  return std::to_string(v / 10000) + '.' + std::to_string(v / 100 % 100) + '.' + std::to_string(v % 100);
}

// The name of the GPU; a host has none.
std::string device_name() {
#ifdef KOKKOS_ENABLE_CUDA
  if (Kokkos::is_initialized()) return Kokkos::Cuda().cuda_device_prop().name;
#elif defined(KOKKOS_ENABLE_HIP)
  if (Kokkos::is_initialized()) return Kokkos::HIP().hip_device_prop().name;
#endif
  return {};
}

// A schema is described without Kokkos::initialize.
std::int32_t concurrency() {
  return Kokkos::is_initialized() ? std::int32_t(Kokkos::DefaultExecutionSpace().concurrency()) : 0;
}

std::string kokkos_configuration() {
  std::ostringstream text;
  if (Kokkos::is_initialized()) Kokkos::print_configuration(text, true);
  return text.str();
}

// The kind goes without saying where the name of the run begins with its first word.
std::string title_of(const std::string& kind, const std::string& run_name) {
  const bool said = run_name.starts_with(kind.substr(0, kind.find('_')));
  return "Kformer " + (said ? run_name : kind + " " + run_name);
}

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::string version_line(const std::string& program) {
  return program + " " KFORMER_VERSION " (" + std::string(KFORMER_GIT_SHA).substr(0, 8) +
         (KFORMER_GIT_DIRTY ? ", modified)" : ")");
}

std::string kokkos_summary() {
  return "Kokkos " + kokkos_version() +
         " with " KFORMER_SPACES "\n" KFORMER_COMPILER " " KFORMER_COMPILER_VERSION ", " KFORMER_BUILD_TYPE
         "\n";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

void write_provenance(ResultFile& file, const std::string& kind, const std::string& run_name,
                      const std::vector<std::string>& command_line) {
  const std::string date = utc_now();
  const std::string command = joined(command_line, " ");
  file.root()
      .attribute("title", title_of(kind, run_name), "of plots")
      .attribute("source", version_line("Kformer"), "what made the data")
      .attribute("history", date + " " + command,
                 "the commands that made the file, a line each, with their time")
      .attribute("references", "https://github.com/kformer/kformer",
                 "where the program and its methods are described")
      .attribute("kind", kind, "kind of the run: which groups the file has")
      .attribute("run_name", run_name, "name of the run")
      .attribute("date", date, "start of the run, ISO 8601 in UTC")
      .attribute("software", "kformer", "what wrote the file")
      .attribute("softwareVersion", KFORMER_VERSION, "its version")
      .attribute("git_sha", KFORMER_GIT_SHA, "its commit")
      .attribute("git_dirty", std::int8_t(KFORMER_GIT_DIRTY), "1 if it had changes beyond that commit")
      .attribute("hostname", host_name(), "where it ran")
      .attribute("slurm_job_id", environment_value("SLURM_JOB_ID"), "of the batch system; empty: none");

  file.group("provenance")
      .attribute("compiler", KFORMER_COMPILER, "of the program")
      .attribute("compiler_version", KFORMER_COMPILER_VERSION, "its version")
      .attribute("cxx_flags", KFORMER_CXX_FLAGS, "its flags")
      .attribute("build_type", KFORMER_BUILD_TYPE, "of CMake")
      .attribute("kokkos_version", kokkos_version(), "of Kokkos")
      .attribute("kokkos_backends", KFORMER_SPACES, "execution spaces of the build")
      .attribute("kokkos_device", Kokkos::DefaultExecutionSpace::name(), "default execution space")
      .attribute("kokkos_concurrency", concurrency(), "threads of that space")
      .attribute("device_name", device_name(), "the GPU, as its driver names it; empty: none")
      .attribute("cpu_model", cpu_model(), "processor, as the system names it")
      .attribute("cpu_threads", std::int32_t(std::thread::hardware_concurrency()),
                 "hardware threads of the host")
      .attribute("hdf5_version", hdf5_version(), "of the library that wrote the file")
      .text("command_line", command, "the command that was run")
      .text("kokkos_configuration", kokkos_configuration(), "Kokkos::print_configuration")
      .text("environment", environment(), "the environment variables that can affect a run");
}

void write_deck(ResultFile& file, const std::string& text, const std::string& resolved,
                const std::vector<std::string>& overrides) {
  file.group("provenance")
      .text("deck_text", text, "the deck as it was read, byte for byte")
      .text("deck_resolved", resolved, "every key of the deck with its value")
      .text("overrides", joined(overrides, "\n"), "one --set per line");
}

}  // namespace kformer::measure
