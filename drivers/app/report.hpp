// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "app/terminal.hpp"
#include "kformer/core/enum_names.hpp"

/// \file
/// The table that a driver prints: for people, or for programs.

namespace kformer {

/// How a driver prints its table.
enum class ReportFormat { table, csv, json, markdown };
/// The names of the enumerators on command lines, in order.
template <>
inline constexpr std::array<std::string_view, 4> names_of<ReportFormat> = {"table", "csv", "json", "markdown"};

}  // namespace kformer

namespace kformer::drivers {

/// The columns of a terminal that a table never exceeds.
inline constexpr std::size_t report_width = 100;

/// A column of a report.
struct ReportColumn {
  std::string heading;    ///< in tables; empty: not shown there
  std::string name;       ///< in CSV and JSON, with its unit; empty: not shown there
  std::size_t width = 0;  ///< least width in tables, for values that are not known in advance
  bool left = false;      ///< flush left rather than right
};

/// A value of a report.
struct ReportValue {
  std::string shown;  ///< as people read it
  /// As programs read it; NaN and nothing are an empty field in CSV and null in JSON.
  std::variant<std::monostate, std::string, std::int64_t, double> value{};
  Tone tone = Tone::plain;  ///< colour on terminals
};

/// A text that is its own value.
ReportValue text_value(std::string_view text);
/// A count.
ReportValue count_value(std::int64_t count);
/// Bytes, shown with three digits: "15.0 GiB".
ReportValue bytes_value(std::int64_t bytes);

/// The lines of a text, broken at spaces where they are wider than `report_width`. Words that are wider, such as paths, stay.
/// \param indent spaces before what goes on in another line
std::string wrapped(std::string_view text, std::size_t indent);

/// Sentences for a stream: `wrapped` on a terminal. A log keeps its lines, in which people and programs search.
std::string prose(std::FILE* stream, const std::string& text, std::size_t indent = 2);

/// Where a driver prints what is no part of its table: beside the table of people, not into that of programs.
std::FILE* log_beside(ReportFormat format);

/// The table that a driver prints, row by row, in running order.
///
/// The labels of all rows are known in advance. As a table, those that no row changes are in a line before it. While
/// the table is wider than `report_width`, the label that changes least often moves from the rows into lines between
/// them.
class Report {
 public:
  /// What is printed.
  struct Layout {
    ReportFormat format = ReportFormat::table;     ///< of the output
    bool colours = false;                          ///< whether values have their colours
    std::vector<ReportColumn> labels;              ///< what tells the rows apart, slowest first
    std::vector<std::vector<ReportValue>> points;  ///< the labels of every row
    std::vector<ReportColumn> results;             ///< what follows the labels
    bool wraps = false;                            ///< whether messages of a table are `wrapped`
  };

  explicit Report(Layout layout);

  /// What precedes the rows.
  std::string head() const;
  /// The next row.
  /// \param results one for each column
  /// \param message why the row is as it is; empty: nothing to say
  std::string row(const std::vector<ReportValue>& results, const std::string& message = {});
  /// What follows the rows.
  std::string end() const;

 private:
  enum class Place { nowhere, line_before, line_between, row };

  void place_labels();
  std::size_t table_width() const;
  std::string labels_at(std::size_t row, Place place) const;
  std::string table_head() const;
  std::string table_row(const std::vector<ReportValue>& results, const std::string& message) const;

  Layout m_layout;
  std::vector<Place> m_places;          // of the labels
  std::vector<std::size_t> m_widths{};  // of the labels, then of the results
  std::size_t m_next = 0;
};

/// A report whose rows are all known: columns of results that have one value in several rows move to the line before, too.
std::string whole_report(Report::Layout layout, const std::vector<std::vector<ReportValue>>& results,
                         const std::vector<std::string>& messages);

}  // namespace kformer::drivers
