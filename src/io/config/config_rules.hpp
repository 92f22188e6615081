// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

/// \file
/// The rules of config.json for a whole model.

namespace kformer::Impl {

/// Takes a fault: a sentence that begins with the key.
using ReportFault = std::function<void(const std::string&)>;

/// Sets `model_type` if only `architectures` names the family, and reports unknown families.
void settle_family(nlohmann::json& config, const ReportFault& report);

/// Moves `rope_parameters` of newer files to the keys of older files: `rope_theta`, `rope_scaling`.
void unfold_rope_parameters(nlohmann::json& config, const ReportFault& report);

/// Adds the defaults of the families.
void add_family_defaults(nlohmann::json& config);

/// Sets `sliding_window` to 0 where no layer has it, and reports windows on only some layers.
void settle_window(nlohmann::json& config, const ReportFault& report);

/// Reports keys that ask for unsupported computations.
void refuse_other_models(const nlohmann::json& config, const ReportFault& report);

}  // namespace kformer::Impl
