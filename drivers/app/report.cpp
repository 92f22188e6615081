// SPDX-License-Identifier: MIT
#include "app/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace kformer::drivers {

namespace {

using Values = std::vector<ReportValue>;

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

std::string csv_text(const ReportValue& value) {
  if (const auto* text = std::get_if<std::string>(&value.value)) return csv_field(*text);
  if (const auto* count = std::get_if<std::int64_t>(&value.value)) return std::to_string(*count);
  const auto* number = std::get_if<double>(&value.value);
  return number == nullptr || !std::isfinite(*number) ? "" : fmt::format("{}", *number);
}

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_text(const ReportValue& value) {
  if (const auto* text = std::get_if<std::string>(&value.value)) return json_string(*text);
  const std::string number = csv_text(value);
  return number.empty() ? "null" : number;
}

std::string markdown_text(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

// In code points, of which a terminal shows each in one column.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xc0u) != 0x80u; }));
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return left ? text + space : space + text;
}

// Calls `f(column, value)` with those that programs read.
template <class F>
void for_each_named(const std::vector<ReportColumn>& columns, const Values& values, const F& f) {
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (!columns[i].name.empty()) f(columns[i], values[i]);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text, line;
  for (const std::string& part : parts) {
    const bool full = !line.empty() && width_of(line) + width_of(part) + 2 > report_width;
    if (full) text += line + ",\n";
    line = full || line.empty() ? part : line + ", " + part;
  }
  return text + line;
}

// Where a line that is too wide ends: at the last space within `report_width`, or else at the first one behind it.
std::size_t break_of(const std::string& line, std::size_t first_word) {
  std::size_t place = std::string::npos;
  for (std::size_t at = line.find(' ', first_word); at != std::string::npos; at = line.find(' ', at + 1)) {
    if (place != std::string::npos && width_of(line.substr(0, at)) > report_width) break;
    place = at;
  }
  return place;
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t indent) {
  std::string all;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    line.erase(line.find_last_not_of(' ') + 1);
    std::size_t first_word = line.find_first_not_of(' ');
    while (width_of(line) > report_width) {
      const std::size_t place = break_of(line, first_word);
      if (place == std::string::npos) break;
      all += line.substr(0, line.find_last_not_of(' ', place) + 1) + "\n";
      line = std::string(indent, ' ') + line.substr(line.find_first_not_of(' ', place));
      first_word = indent;
    }
    all += line;
    if (end < text.size()) all += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

std::string prose(std::FILE* stream, const std::string& text, std::size_t indent) {
  return is_terminal(stream) ? wrapped(text, indent) : text;
}

ReportValue text_value(std::string_view text) { return {std::string(text), std::string(text)}; }

ReportValue count_value(std::int64_t count) { return {std::to_string(count), count}; }

ReportValue bytes_value(std::int64_t bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double size = std::fabs(static_cast<double>(bytes));
  std::size_t unit = 0;
  for (; size >= 1000 && unit + 1 < units.size(); ++unit) size /= 1024;
  const int digits = unit == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return {fmt::format("{}{:.{}f} {}", bytes < 0 ? "-" : "", size, digits, units[unit]), bytes};
}

std::FILE* log_beside(ReportFormat format) { return format == ReportFormat::table ? stdout : stderr; }

Report::Report(Layout layout) : m_layout(std::move(layout)), m_places(m_layout.labels.size(), Place::row) {
  for (std::size_t i = 0; i < m_layout.labels.size(); ++i) {
    std::size_t width = std::max(m_layout.labels[i].width, width_of(m_layout.labels[i].heading));
    for (const Values& point : m_layout.points) width = std::max(width, width_of(point[i].shown));
    m_widths.push_back(width);
  }
  for (const ReportColumn& column : m_layout.results)
    m_widths.push_back(column.heading.empty() ? 0 : std::max(column.width, width_of(column.heading)));
  place_labels();
}

void Report::place_labels() {
  for (std::size_t i = 0; i < m_layout.labels.size(); ++i) {
    const auto& points = m_layout.points;
    const bool constant = std::ranges::all_of(
        points, [&](const Values& point) { return point[i].shown == points.front()[i].shown; });
    if (constant) m_places[i] = Place::line_before;
    if (m_layout.labels[i].heading.empty()) m_places[i] = Place::nowhere;
  }
  for (std::size_t i = 0; i < m_places.size() && table_width() > report_width; ++i)
    if (m_places[i] == Place::row) m_places[i] = Place::line_between;
}

std::size_t Report::table_width() const {
  std::size_t width = 0;
  for (std::size_t i = 0; i < m_widths.size(); ++i) {
    const bool shown = i < m_places.size() ? m_places[i] == Place::row : m_widths[i] > 0;
    if (shown) width += m_widths[i] + (width == 0 ? 0 : 1);
  }
  return width;
}

std::string Report::labels_at(std::size_t row, Place place) const {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < m_places.size(); ++i)
    if (m_places[i] == place && !m_layout.points[row][i].shown.empty())
      parts.push_back(m_layout.labels[i].heading + " " + m_layout.points[row][i].shown);
  return joined(parts);
}

std::string Report::table_head() const {
  std::string text, line;
  if (!m_layout.points.empty()) text = labels_at(0, Place::line_before);
  if (!text.empty()) text += '\n';
  const auto add = [&](const ReportColumn& column, std::size_t width) {
    line += (line.empty() ? "" : " ") + padded(column.heading, width, column.left);
  };
  for (std::size_t i = 0; i < m_places.size(); ++i)
    if (m_places[i] == Place::row) add(m_layout.labels[i], m_widths[i]);
  for (std::size_t i = 0; i < m_layout.results.size(); ++i)
    if (m_widths[m_places.size() + i] > 0) add(m_layout.results[i], m_widths[m_places.size() + i]);
  return text + line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string Report::head() const {
  if (m_layout.format == ReportFormat::table) return table_head();
  if (m_layout.format == ReportFormat::json) return "[";
  const bool csv = m_layout.format == ReportFormat::csv;
  std::string names = csv ? "" : "|", rule = "|";
  for (const auto* columns : {&m_layout.labels, &m_layout.results})
    for (const ReportColumn& column : *columns) {
      if (csv && !column.name.empty()) names += column.name + ",";
      if (csv || column.heading.empty()) continue;
      names += " " + column.heading + " |";
      rule += column.left ? "---|" : "---:|";
    }
  return csv ? names + "message\n" : names + " message |\n" + rule + "---|\n";
}

std::string Report::table_row(const Values& results, const std::string& message) const {
  std::string text, line;
  const std::string between = labels_at(m_next, Place::line_between);
  if (!between.empty() && (m_next == 0 || labels_at(m_next - 1, Place::line_between) != between))
    text = between + ":\n";
  const auto add = [&](const ReportColumn& column, const ReportValue& value, std::size_t width) {
    const std::string cell = padded(value.shown, width, column.left);
    line += (line.empty() ? "" : " ") + (m_layout.colours ? coloured(cell, value.tone) : cell);
  };
  for (std::size_t i = 0; i < m_places.size(); ++i)
    if (m_places[i] == Place::row) add(m_layout.labels[i], m_layout.points[m_next][i], m_widths[i]);
  for (std::size_t i = 0; i < results.size(); ++i)
    if (m_widths[m_places.size() + i] > 0) add(m_layout.results[i], results[i], m_widths[m_places.size() + i]);
  text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  if (message.empty()) return text;
  const std::string below = "  " + message + "\n";
  return text + (m_layout.wraps ? wrapped(below, 4) : below);
}

std::string Report::row(const Values& results, const std::string& message) {
  const Values& labels = m_layout.points.at(m_next);
  const bool csv = m_layout.format == ReportFormat::csv;
  std::string text;
  const auto add_named = [&](const ReportColumn& column, const ReportValue& value) {
    text += csv ? csv_text(value) + "," : json_string(column.name) + ": " + json_text(value) + ", ";
  };
  switch (m_layout.format) {
    case ReportFormat::table:
      text = table_row(results, message);
      break;
    case ReportFormat::csv:
    case ReportFormat::json:
      for_each_named(m_layout.labels, labels, add_named);
      for_each_named(m_layout.results, results, add_named);
      text = csv ? text + csv_field(message) + "\n"
                 : (m_next == 0 ? "\n  {" : ",\n  {") + text + "\"message\": " + json_string(message) + "}";
      break;
    case ReportFormat::markdown:
      text = "|";
      for (const auto& [columns, values] :
           {std::pair(&m_layout.labels, &labels), std::pair(&m_layout.results, &results)})
        for (std::size_t i = 0; i < columns->size(); ++i)
          if (!(*columns)[i].heading.empty()) text += " " + markdown_text((*values)[i].shown) + " |";
      text += " " + markdown_text(message) + " |\n";
  }
  ++m_next;
  return text;
}

std::string Report::end() const {
  return m_layout.format == ReportFormat::json ? m_next == 0 ? "]\n" : "\n]\n" : "";
}

std::string whole_report(Report::Layout layout, const std::vector<Values>& results,
                         const std::vector<std::string>& messages) {
  // The columns of results that every row has in common become labels, and these are folded.
  const bool folds = layout.format == ReportFormat::table && results.size() > 1;
  std::vector<ReportColumn> kept;
  std::vector<Values> rows(results.size());
  for (std::size_t i = 0; i < layout.results.size(); ++i) {
    ReportColumn column = layout.results[i];
    const bool constant =
        folds && !column.heading.empty() && std::ranges::all_of(results, [&](const Values& row) {
          return row[i].shown == results.front()[i].shown;
        });
    for (std::size_t k = 0; k < results.size(); ++k) {
      if (!constant) column.width = std::max(column.width, width_of(results[k][i].shown));
      (constant ? layout.points[k] : rows[k]).push_back(results[k][i]);
    }
    (constant ? layout.labels : kept).push_back(column);
  }
  layout.results = std::move(kept);
  Report report(std::move(layout));
  std::string text = report.head();
  for (std::size_t k = 0; k < rows.size(); ++k) text += report.row(rows[k], messages[k]);
  return text + report.end();
}

}  // namespace kformer::drivers
