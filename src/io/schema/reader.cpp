// SPDX-License-Identifier: MIT
#include "io/schema/reader.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "io/nearest_name.hpp"
#include "io/schema/bytes.hpp"

namespace kformer::Impl::schema {
namespace {

std::string in_table(const std::string& name) {
  return name.empty() ? "at the top level" : "in [" + name + "]";
}

}  // namespace

Reader::Reader(const Table& entries, Place place, std::string name, Diagnostics& diagnostics,
               const std::vector<std::string>* all_keys)
    : m_entries(entries),
      m_place(std::move(place)),
      m_name(std::move(name)),
      m_diagnostics(diagnostics),
      m_all_keys(all_keys) {}

void Reader::report_unknown() const {
  for (const auto& entry : m_entries) {
    if (std::find(m_described.begin(), m_described.end(), entry.key) != m_described.end()) continue;
    const bool is_table = std::holds_alternative<Table>(entry.value.data);
    const std::string what = is_table ? fmt::format("unknown table [{}]", qualified(entry.key.c_str()))
                                      : fmt::format("unknown key '{}' {}", entry.key, in_table(m_name));
    const bool may_be_elsewhere = !is_table && m_all_keys != nullptr;
    m_diagnostics.error(
        entry.place, what,
        naming_hint(entry.key, m_described, may_be_elsewhere ? *m_all_keys : std::vector<std::string>()));
  }
}

const Entry* Reader::given(const char* name) {
  m_described.emplace_back(name);
  const Entry* entry = find(m_entries, name);
  if (entry != nullptr) m_given.insert(name);
  return entry;
}

std::string Reader::qualified(const char* name) const { return m_name.empty() ? name : m_name + "." + name; }

std::string Reader::element_name(const std::string& name, std::size_t index) {
  return fmt::format("{}[{}]", name, index);
}

void Reader::report_missing(const Key& key, const Type& type) const {
  m_diagnostics.error(m_place, fmt::format("missing key '{}' {}: {}", key.name, in_table(m_name),
                                           expectation(type, key.range)));
}

void Reader::report_type(const Value& value, const std::string& name, const Type& type,
                         const Range& range) const {
  std::string hint;
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    const auto nearest = nearest_names(*text, {type.choices.begin(), type.choices.end()}, 1);
    if (!nearest.empty()) hint = fmt::format("did you mean '{}'?", nearest.front());
  }
  m_diagnostics.error(
      value.place, fmt::format("'{}' must be {}, got {}", name, expectation(type, range), shown(value)), hint);
}

void Reader::report_duplicate(const Value& value, const std::string& name) const {
  m_diagnostics.error(value.place, fmt::format("'{}' repeats an earlier value", name));
}

void Reader::report_empty(const Value& value, const std::string& name) const {
  m_diagnostics.error(value.place,
                      fmt::format("'{}' must not be empty; leave the key out for its default", name));
}

const Table* Reader::as_table(const Value& value, const Place& place, const std::string& name) const {
  const auto* table = std::get_if<Table>(&value.data);
  if (table == nullptr)
    m_diagnostics.error(place, fmt::format("'{}' must be a table, got {}", name, shown(value)));
  return table;
}

const Array* Reader::array_of_tables(const Entry& entry) const {
  const auto* elements = std::get_if<Array>(&entry.value.data);
  if (elements == nullptr) {
    const std::string name = qualified(entry.key.c_str());
    m_diagnostics.error(entry.place, fmt::format("'{}' must be an array of tables, got {}; write [[{}]]", name,
                                                 shown(entry.value), name));
  }
  return elements;
}

bool Reader::scalar(const Value& value, const std::string& name, const Key& key, const Type& type,
                    bool& member) {
  const auto* given = std::get_if<bool>(&value.data);
  if (given == nullptr) return report_type(value, name, type, key.range), false;
  member = *given;
  return true;
}

bool Reader::scalar(const Value& value, const std::string& name, const Key& key, const Type& type,
                    std::int64_t& member) {
  const auto* given = std::get_if<std::int64_t>(&value.data);
  const auto* text = std::get_if<std::string>(&value.data);
  const auto bytes = type.kind == Kind::bytes && text != nullptr ? bytes_in(*text) : std::nullopt;
  if (bytes) given = &*bytes;
  // 80e9 is a float in TOML.
  const auto* real = std::get_if<double>(&value.data);
  std::int64_t whole = 0;
  if (type.kind == Kind::bytes && real != nullptr && std::floor(*real) == *real && std::fabs(*real) < 0x1p63) {
    whole = static_cast<std::int64_t>(*real);
    given = &whole;
  }
  if (given == nullptr || !within(static_cast<double>(*given), key.range))
    return report_type(value, name, type, key.range), false;
  member = *given;
  return true;
}

bool Reader::scalar(const Value& value, const std::string& name, const Key& key, const Type& type,
                    double& member) {
  const auto* real = std::get_if<double>(&value.data);
  const auto* integer = std::get_if<std::int64_t>(&value.data);
  const double given = real != nullptr ? *real : integer != nullptr ? static_cast<double>(*integer) : NAN;
  if (!within(given, key.range)) return report_type(value, name, type, key.range), false;
  member = given;
  return true;
}

bool Reader::scalar(const Value& value, const std::string& name, const Key& key, const Type& type,
                    std::string& member) {
  // The text of a number of bytes stays as it is: an empty one may have a meaning.
  if (type.kind == Kind::bytes) return text_of_bytes(value, name, key, type, member);
  const auto* given = std::get_if<std::string>(&value.data);
  const bool listed =
      given != nullptr && std::find(type.choices.begin(), type.choices.end(), *given) != type.choices.end();
  if (given == nullptr || (!type.choices.empty() && !listed))
    return report_type(value, name, type, key.range), false;
  member = *given;
  return true;
}

bool Reader::text_of_bytes(const Value& value, const std::string& name, const Key& key, const Type& type,
                           std::string& member) {
  const auto* given = std::get_if<std::string>(&value.data);
  std::int64_t bytes = 0;
  if (given == nullptr || !given->empty())
    if (!scalar(value, name, key, type, bytes)) return false;
  member = given != nullptr ? *given : std::to_string(bytes);
  return true;
}

bool Reader::scalar(const Value& value, const std::string& name, const Key& key, const Type& type,
                    std::filesystem::path& member) {
  const auto* given = std::get_if<std::string>(&value.data);
  if (given == nullptr || given->empty()) return report_type(value, name, type, key.range), false;
  member = std::filesystem::absolute(value.place.source->directory / *given).lexically_normal();
  return true;
}

}  // namespace kformer::Impl::schema
