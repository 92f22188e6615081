// SPDX-License-Identifier: MIT
#pragma once

#include <iosfwd>
#include <vector>

#include "attention_cases.hpp"

namespace kformer::perf {

/// Times calls on request, so that another program can take turns with this one. One request a line, answered
/// by one line of JSON:
///
/// * `about`: version, instruction set of the peak, threads, bytes of the last-level cache
/// * `cases`: what there is to time, with shapes and options
/// * `time NAME COUNT`: kernel, seconds of each of COUNT calls
/// * `limit NAME`: `per_second`, the multiply-add peak or the copy bandwidth at this moment, as the case's
///   `limit` says
///
/// A request that cannot be answered gets `{"error": "…"}`. Returns at the end of `in`.
void serve(const std::vector<AttentionCase>& cases, std::istream& in, std::ostream& out);

}  // namespace kformer::perf
