// SPDX-License-Identifier: MIT
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "case.hpp"

namespace kformer::perf {

/// Times calls on request, so that another program can take turns with this one. One request a line, answered
/// by one line of JSON:
///
/// * `about`: version, instruction set of the peak, device, threads, bytes over which operands rotate
/// * `cases`: what there is to time, with shapes and options
/// * `time NAME COUNT`: kernel, seconds of one call in each of COUNT samples, calls in a sample
/// * `limit NAME`: `seconds` that a call takes at least on this machine at this moment
///
/// A request that cannot be answered gets `{"error": "…"}`. Returns at the end of `in`.
/// \param rotated bytes of other operands between two uses of the same
void serve(const std::string& program, const std::vector<Case>& cases, std::size_t rotated, std::istream& in,
           std::ostream& out);

}  // namespace kformer::perf
