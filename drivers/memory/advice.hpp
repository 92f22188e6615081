// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/plan.hpp"

namespace kformer::drivers {

/// Which policy of recomputation to take: a sentence for all training cases that differ only in it. It is the fastest
/// that fits; of equally fast ones the one with the fewest bytes. Empty without a training case that can run.
std::string advice(const std::vector<PlannedCase>& cases);

/// A sentence if cases have more tokens than the model was made for. Empty if none has.
/// \param longest max_position_embeddings of the model; 0: unknown
std::string context_note(const std::vector<PlannedCase>& cases, std::int64_t longest);

/// What the bytes of a plan leave out, in one sentence.
/// \param training whether a case trains
/// \param scratch  bytes of scratch memory
std::string not_counted(bool training, std::size_t scratch);

}  // namespace kformer::drivers
