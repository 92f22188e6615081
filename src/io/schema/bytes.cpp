// SPDX-License-Identifier: MIT
#include "io/schema/bytes.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "io/nearest_name.hpp"

namespace kformer::Impl::schema {

std::optional<std::int64_t> bytes_in(std::string_view text) {
  const char *const begin = text.data(), *const last = begin + text.size();
  // A double does not hold every integer, and rounds the greatest ones up to 2^63.
  std::int64_t whole = 0;
  if (const auto [end, fault] = std::from_chars(begin, last, whole);
      fault == std::errc() && end == last && whole >= 0)
    return whole;
  double number = 0;
  const auto [end, fault] = std::from_chars(begin, last, number);
  if (fault != std::errc() || !(number >= 0)) return {};
  std::string_view unit = text.substr(static_cast<std::size_t>(end - begin));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::array<std::pair<std::string_view, double>, 14> units{{{"", 1},
                                                                       {"b", 1},
                                                                       {"kb", 1e3},
                                                                       {"mb", 1e6},
                                                                       {"gb", 1e9},
                                                                       {"tb", 1e12},
                                                                       {"ki", 0x1p10},
                                                                       {"kib", 0x1p10},
                                                                       {"mi", 0x1p20},
                                                                       {"mib", 0x1p20},
                                                                       {"gi", 0x1p30},
                                                                       {"gib", 0x1p30},
                                                                       {"ti", 0x1p40},
                                                                       {"tib", 0x1p40}}};
  const std::string small = lower(unit);
  for (const auto& [name, factor] : units)
    if (small == name) {
      const double bytes = std::floor(number * factor);
      if (!(bytes < 0x1p63)) return {};
      return static_cast<std::int64_t>(bytes);
    }
  return {};
}

}  // namespace kformer::Impl::schema
