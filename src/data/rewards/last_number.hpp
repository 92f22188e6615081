// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kformer::Impl::data {

/// A decimal number of any size: ± digits · 10^exponent. 0 has no digits; others neither begin nor end with a zero, so
/// that equal numbers have equal members.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int64_t exponent = 0;

  bool operator==(const Decimal&) const = default;
};

/// The last number in a text, as `Rewards` defines it. A fraction is none.
std::optional<Decimal> last_number(std::string_view text);

}  // namespace kformer::Impl::data
