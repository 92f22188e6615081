// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace kformer::Impl {

/// Whether a JSON text has at most `deepest` objects and lists within each other. A callback of the parser of nlohmann_json
/// would tell, too, but it looks through all of a list after each object in it.
bool is_shallow_json(std::string_view text, int deepest);

}  // namespace kformer::Impl
