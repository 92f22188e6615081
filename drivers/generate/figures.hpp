// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "generate/generate_results.hpp"
#include "kformer/memory/memory_class.hpp"

namespace kformer::drivers {

/// The classes that have bytes: "weights 1.00 MiB, workspace 3.0 KiB".
std::string classes_text(const std::array<std::size_t, memory_classes>& peaks);

/// Time and memory of a generation, as lines of text.
std::string figures_of(const GenerationLabel& label, const Generation& generation);

/// The settings of a deck, one per line, for --dry-run.
std::string plan_of(const GenerateDeck& deck);

}  // namespace kformer::drivers
