// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "io/results/serialize.hpp"

namespace kformer::Impl {

/// What is declared in `contents`, as JSON: for each group its attributes, texts, dimensions and columns with type,
/// dimensions, units, description, and where files have it. Values play no part, except `kind` and `schema_version` of
/// the root.
std::string schema_text(const ResultContents& contents);

}  // namespace kformer::Impl
