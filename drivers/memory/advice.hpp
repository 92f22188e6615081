// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "memory/plan.hpp"

namespace kformer::drivers {

/// Which policy of recomputation to take: a sentence for all training cases that differ only in it. It is the fastest
/// that fits; of equally fast ones the one with the fewest bytes. Empty without a training case that can run.
std::string advice(const std::vector<PlannedCase>& cases);

/// What the bytes of a plan leave out, in one sentence.
/// \param training whether a case trains
std::string not_counted(bool training);

}  // namespace kformer::drivers
