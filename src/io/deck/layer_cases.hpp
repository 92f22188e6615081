// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "kformer/io/layer_deck.hpp"

namespace kformer::Impl::decks {

/// Whether this is "all" or "default", which are no execution spaces but stand for what the build has.
bool stands_for_others(const std::string& space);

/// All cases of a sweep, with "all" execution spaces as one, before any is excluded.
std::vector<LayerCase> cases_of(SweepMode mode, const LayerAxes& axes);

/// Whether a case has one of the excluded values on every axis that the exclusion names.
bool matches(const LayerAxes& exclusion, const LayerCase& point);

/// The exclusion without the axes whose values are only known when the deck runs.
LayerAxes known_part(LayerAxes exclusion, const LayerAxes& axes);

}  // namespace kformer::Impl::decks
