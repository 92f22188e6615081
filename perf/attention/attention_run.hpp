// SPDX-License-Identifier: MIT
#pragma once

#include "attention/attention_cases.hpp"
#include "case.hpp"

namespace kformer::perf {

/// The case as every program of this folder times it.
Case measured(const AttentionCase& what);

}  // namespace kformer::perf
