// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>

#include "io/schema/diagnostics.hpp"

namespace kformer::Impl::schema {

/// Parses TOML into a tree that contains the place of every key and value.
/// \returns nothing if the text is not TOML; the fault is in `diagnostics` then
std::optional<Table> parse_toml(const std::shared_ptr<const SourceText>& source, Diagnostics& diagnostics);

/// Parses "table.key=value". A value that is not TOML but a bare word is a string: `--set run.name=test`.
/// \copydetails parse_toml
std::optional<Table> parse_override(const std::shared_ptr<const SourceText>& source, Diagnostics& diagnostics);

}  // namespace kformer::Impl::schema
