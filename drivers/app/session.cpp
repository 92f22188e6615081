// SPDX-License-Identifier: MIT
#include "app/session.hpp"

#include <fmt/format.h>

#include <array>
#include <concepts>
#include <cstdlib>
#include <map>
#include <sstream>

#include "app/say.hpp"
#include "app/start_kokkos.hpp"
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

// The keys of a resolved deck, which has one in a line, without those that two parts of a run may have for themselves.
std::map<std::string, std::string> keys_of(const std::string& deck) {
  std::map<std::string, std::string> keys;
  std::map<std::string, int> tables;
  std::string table;
  std::istringstream lines(deck);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[[")) {
      const std::string name = line.substr(2, line.find(']') - 2);
      table = fmt::format("{}[{}].", name, tables[name]++);
    } else if (line.starts_with('[')) {
      table = line.substr(1, line.find(']') - 1) + '.';
    } else if (const std::size_t equals = line.find(" = "); equals != std::string::npos) {
      keys[table + line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  std::erase_if(
      keys, [](const auto& key) { return key.first.starts_with("output.") || key.first == "run.walltime_s"; });
  return keys;
}

// The first key that differs, as "'sweep.batch' is [1] and was [2]"; empty if none does.
std::string difference_of_decks(const std::string& now, const std::string& before) {
  auto keys = keys_of(now), old_keys = keys_of(before);
  for (const auto& [key, value] : old_keys) keys.try_emplace(key, "not there");
  for (const auto& [key, value] : keys) {
    const auto old = old_keys.find(key);
    const std::string was = old == old_keys.end() ? "not there" : old->second;
    if (value != was) return fmt::format("'{}' is {} and was {}", key, value, was);
  }
  return {};
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
  const std::string difference =
      difference_of_decks(file.group("provenance").texts().at("deck_resolved").content,
                          file.unfinished_text("provenance", "deck_resolved"));
  if (!difference.empty()) refuse(difference);
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
