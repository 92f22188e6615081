// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "kformer/io/result_table.hpp"

namespace kformer::Testing {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A table with a column of each kind.
inline Table cases_table() {
  Table table("cases", "case", "number of the case");
  table.dimension("repeat", "timed repetition")
      .dimension("memory_class", "use of the memory", {"weights", "workspace"});
  table.column({.name = "impl", .type = ColumnType::text, .long_name = "implementation of attention"});
  table.column({.name = "seq_len", .type = ColumnType::i64, .long_name = "sequence length"});
  table.column({.name = "time", .units = "s", .long_name = "time of one call", .along = "repeat"});
  table.column({.name = "energy", .units = "J", .long_name = "energy of one call"});
  table.column({.name = "token", .type = ColumnType::i32, .long_name = "token", .along = "repeat", .fill = -1});
  table.column({.name = "status",
                .type = ColumnType::flag,
                .long_name = "outcome",
                .meanings = {"ok", "out_of_memory"}});
  table.column({.name = "causal", .type = ColumnType::flag, .long_name = "mask", .meanings = {"no", "yes"}});
  table.column({.name = "peak_bytes",
                .type = ColumnType::u64,
                .units = "byte",
                .long_name = "peak memory",
                .along = "memory_class"});
  return table;
}

/// A row of it.
inline std::vector<Table::Cell> plain_row(int seq_len) {
  return {
      {"impl", "flash"}, {"seq_len", seq_len},      {"time", std::vector{0.5, 0.25}},
      {"status", "ok"},  {"causal", seq_len > 512}, {"peak_bytes", std::vector<std::uint64_t>{1, 1ULL << 63}}};
}

}  // namespace kformer::Testing
