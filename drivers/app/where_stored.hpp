// SPDX-License-Identifier: MIT
#pragma once

namespace kformer::drivers {

/// `Column::when` of what was added to a version of the format: files of earlier programs lack it.
inline constexpr const char* where_stored = "in files of programs that store it";

}  // namespace kformer::drivers
