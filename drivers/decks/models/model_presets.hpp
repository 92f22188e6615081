// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kformer/io/model_table.hpp"

/// \file
/// Shapes of published models, by name.

namespace kformer {

/// A published model.
struct ModelPreset {
  std::string name;          ///< such as "llama-3.2-1b"
  LanguageModelTable model;  ///< as its config.json says, complete
};

/// All of them, by family and size.
const std::vector<ModelPreset>& model_presets();

/// The model of that name; null if there is none.
const LanguageModelTable* model_preset(std::string_view name);

}  // namespace kformer
