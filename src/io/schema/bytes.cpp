// SPDX-License-Identifier: MIT
#include "io/schema/bytes.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace kformer::Impl::schema {

std::optional<std::int64_t> bytes_in(std::string_view text) {
  double number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc() || !(number >= 0)) return {};
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  constexpr std::array<std::pair<std::string_view, double>, 10> units{{{"", 1},
                                                                       {"B", 1},
                                                                       {"KB", 1e3},
                                                                       {"MB", 1e6},
                                                                       {"GB", 1e9},
                                                                       {"TB", 1e12},
                                                                       {"KiB", 0x1p10},
                                                                       {"MiB", 0x1p20},
                                                                       {"GiB", 0x1p30},
                                                                       {"TiB", 0x1p40}}};
  for (const auto& [name, factor] : units)
    if (unit == name) {
      const double bytes = std::floor(number * factor);
      if (!(bytes < 0x1p63)) return {};
      return static_cast<std::int64_t>(bytes);
    }
  return {};
}

}  // namespace kformer::Impl::schema
