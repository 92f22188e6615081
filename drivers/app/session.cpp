// SPDX-License-Identifier: MIT
#include "app/session.hpp"

#include <fmt/format.h>

#include <array>
#include <concepts>
#include <cstdlib>

#include "app/say.hpp"
#include "app/start_kokkos.hpp"
#include "decks/engine/deck_keys.hpp"
#include "kformer/core/error.hpp"
#include "measure/provenance.hpp"

namespace kformer::drivers {

namespace {

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string file_of_run(const OutputTable& output, const std::string& name, const std::string& kind,
                        bool resume) {
  if (resume && output.file.find("{date}") != std::string::npos)
    throw DeckError(
        fmt::format("--resume finds no earlier run, because the name of the result file, '{}', has the time "
                    "in it; name the file with --output",
                    output.file));
  // Without colons, before which scp expects a host, and which other systems refuse in names.
  std::string date = measure::utc_now();
  std::erase_if(date, [](char c) { return c == '-' || c == ':'; });
  return output_file_name(output.file, {name, kind, date, environment_value("SLURM_JOB_ID")});
}

// What times depend on.
struct Fact {
  const char* group;
  const char* name;
};
constexpr std::array facts{Fact{"", "kind"},
                           Fact{"", "git_sha"},
                           Fact{"", "git_dirty"},
                           Fact{"provenance", "compiler"},
                           Fact{"provenance", "compiler_version"},
                           Fact{"provenance", "cxx_flags"},
                           Fact{"provenance", "build_type"},
                           Fact{"provenance", "kokkos_version"},
                           Fact{"provenance", "kokkos_backends"},
                           Fact{"provenance", "kokkos_concurrency"},
                           Fact{"provenance", "device_name"},
                           Fact{"provenance", "cpu_model"}};

std::string text_of(const Value& value) {
  return std::visit(
      []<class T>(const std::vector<T>& items) -> std::string {
        if constexpr (std::same_as<T, std::string>)
          return items.front();
        else
          return std::to_string(items.front());
      },
      value.items());
}

// Without the keys that two parts of a run may have for themselves.
DeckKeys keys_of_case(const std::string& resolved) {
  DeckKeys keys = keys_of(resolved);
  std::erase_if(
      keys, [](const auto& key) { return key.first.starts_with("output.") || key.first == "run.walltime_s"; });
  return keys;
}

// Before the finished cases of an unfinished run are taken: both runs must have the same deck, except [output] and the time
// limit, the same build and the same processors. Its commands become part of the history.
void resume_run(ResultFile& file) {
  const auto refuse = [&](const std::string& difference) {
    throw FileError(
        fmt::format("cannot resume the run of '{}': {}; resume it as it was, or start it anew with --overwrite",
                    file.part_path().string(), difference));
  };
  for (const auto& [group, name] : facts) {
    const std::string now = text_of(file.group(group).attributes().at(name).value);
    const std::string before = file.unfinished_text(group, name);
    if (now != before) refuse(fmt::format("{} is '{}' and was '{}'", name, now, before));
  }
  const auto difference =
      difference_of(keys_of_case(file.group("provenance").texts().at("deck_resolved").content),
                    keys_of_case(file.unfinished_text("provenance", "deck_resolved")));
  if (difference)
    refuse(fmt::format("'{}' is {} and was {}", difference->key, difference->value, difference->other));
  file.root().attribute("history", file.unfinished_text("", "history") + "\n" +
                                       text_of(file.root().attributes().at("history").value));
}

}  // namespace

Session::DeviceCheck::DeviceCheck() { require_device(); }

Session::Session(const CommandLine& line, const std::string& program, const std::string& kind,
                 const RunTable& run, const OutputTable& output, const DeckRecord& record, std::FILE* log,
                 bool writes)
    : m_file(file_of_run(output, run.name, kind, line.resume),
             {.overwrite = output.overwrite,
              .compression = static_cast<int>(output.compression),
              .resume = line.resume,
              .discard = !writes}),
      m_kokkos(start_kokkos(line.all.front(), line.kokkos, run.threads)) {
  measure::write_provenance(m_file, kind, run.name, line.all);
  measure::write_deck(m_file, record.text, record.resolved, line.deck.overrides);
  if (m_file.resumes()) resume_run(m_file);
  say(log, "{}\n{}", measure::version_line(program), measure::kokkos_summary());
}

}  // namespace kformer::drivers
