// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kformer::Impl::schema {

/// Bytes that a text names, in letters of any case: "8GiB", "500 MB", "1.5 gib", "16Gi", "4096". Nothing if it names none;
/// "8G" does not, because some mean 10^9 by G and others 2^30.
std::optional<std::int64_t> bytes_in(std::string_view text);

}  // namespace kformer::Impl::schema
