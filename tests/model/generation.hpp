// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "kformer/model/generator.hpp"
#include "model/decoding.hpp"
#include "model/model_cases.hpp"

/// \file
/// What tests of generation start from.

namespace kformer::Testing {

using Prompts = std::vector<std::vector<std::int32_t>>;

/// A small model, and 60 tokens of which prompts are made.
inline ModelInputs some_inputs() { return ModelInputs::random(small_model(), {1, 60}); }

}  // namespace kformer::Testing
