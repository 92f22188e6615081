// SPDX-License-Identifier: MIT
#include "app/rank_results.hpp"

#include <nlohmann/json.hpp>
#include <vector>

#include "app/memory/scratch.hpp"
#include "measure/process/process_memory.hpp"

namespace kformer::drivers {

Table& table_by_class(ResultFile& file, const std::string& path, const std::string& row,
                      const std::string& about) {
  Table& t = file.table(path, row, about);
  std::vector<std::string> names;
  for (int c = 0; c < memory_classes; ++c) names.emplace_back(to_string(static_cast<MemoryClass>(c)));
  t.dimension("memory_class", "memory class", names);
  return t;
}

namespace {

using enum ColumnType;

Table& declare_ranks(ResultFile& file) {
  Table& t = table_by_class(file, "memory/ranks", "rank", "memory of ranks that run together");
  t.when("with several ranks");
  t.column({"predicted_bytes", u64, "byte", "the most that was forecast", "memory_class"});
  t.column({"peak_bytes", u64, "byte", "the most that was booked", "memory_class"});
  t.column({"predicted_total_bytes", u64, "byte", "of all classes together, at the worst moment"});
  t.column({"peak_total_bytes", u64, "byte", "of all classes together, at the worst moment"});
  t.column(scratch_column());
  t.column({"process_peak_bytes", u64, "byte", "most resident memory of the process, by the system"});
  return t;
}

Table& declare_communication(ResultFile& file) {
  Table& t = file.table("communication", "call", "what ranks sent to each other");
  t.when("with several ranks");
  t.column({"rank", i64, "1", "who sent"});
  t.column({"operation", text, "1", "collective operation"});
  t.column({"region", text, "1", "what for"});
  t.column({"calls", u64, "1", "of this run"});
  t.column({"bytes", u64, "byte", "sent to other ranks"});
  t.column({"time", f64, "s", "in exchanges, with the time in which it waited for other ranks"});
  return t;
}

std::string text_of(std::span<const Communicator* const> own) {
  auto rows = nlohmann::json::array();
  for (const Communicator* ranks : own)
    for (const CommunicationCount& c : ranks->log().counts())
      rows.push_back({c.operation, c.region, c.calls, c.bytes, c.seconds});
  return rows.dump();
}

}  // namespace

RankResults::RankResults(ResultFile& file)
    : m_memory(declare_ranks(file)), m_communication(declare_communication(file)) {}

void RankResults::add_memory(Ranks& ranks, const std::string& space, const Ledger& forecast,
                             const Ledger& ledger) {
  std::vector<double> own;
  for (const Ledger* of : {&forecast, &ledger}) {
    for (int c = 0; c < memory_classes; ++c)
      own.push_back(static_cast<double>(of->peak(static_cast<MemoryClass>(c))));
    own.push_back(static_cast<double>(of->peak_total()));
  }
  own.push_back(static_cast<double>(reserved_scratch(space)));
  own.push_back(static_cast<double>(measure::process_memory().peak));
  const auto all = ranks.gather(own, "memory");
  auto next = all.begin();
  const auto bytes = [&] { return static_cast<std::uint64_t>(*next++); };
  const auto by_class = [&] {
    std::vector<std::uint64_t> values;
    for (int c = 0; c < memory_classes; ++c) values.push_back(bytes());
    return values;
  };
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto predicted = by_class();
    const std::uint64_t predicted_total = bytes();
    const auto peak = by_class();
    const std::uint64_t peak_total = bytes(), scratch = bytes(), process = bytes();
    m_memory.append({{"predicted_bytes", predicted},
                     {"peak_bytes", peak},
                     {"predicted_total_bytes", predicted_total},
                     {"peak_total_bytes", peak_total},
                     {"scratch_bytes", scratch},
                     {"process_peak_bytes", process}});
  }
}

void RankResults::add_communication(Ranks& ranks, std::span<const Communicator* const> own) {
  std::int64_t rank = 0;
  for (const std::string& text : ranks.gather_text(text_of(own), "communication")) {
    for (const auto& row : nlohmann::json::parse(text))
      m_communication.append({{"rank", rank},
                              {"operation", row[0].get<std::string>()},
                              {"region", row[1].get<std::string>()},
                              {"calls", row[2].get<std::uint64_t>()},
                              {"bytes", row[3].get<std::uint64_t>()},
                              {"time", row[4].get<double>()}});
    ++rank;
  }
}

}  // namespace kformer::drivers
