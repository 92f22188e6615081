// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kformer::Impl::schema {

/// Bytes that a text names: "8GiB", "500 MB", "1.5 GiB", "4096". Nothing if it names none.
std::optional<std::int64_t> bytes_in(std::string_view text);

}  // namespace kformer::Impl::schema
