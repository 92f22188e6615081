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

/// The model of that name, or of the name that it has where it is published, such as
/// "meta-llama/Llama-3.2-1B-Instruct"; null if there is none.
const ModelPreset* model_preset(std::string_view name);

}  // namespace kformer
