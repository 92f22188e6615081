// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

/// \file
/// What a config.json may say about a whole model, and what is understood by it.

namespace kformer::Impl {

/// Takes a fault: a sentence that begins with the key.
using ReportFault = std::function<void(const std::string&)>;

/// Puts the family into `model_type` where only `architectures` names it, and reports unknown ones.
void settle_family(nlohmann::json& config, const ReportFault& report);

/// Moves `rope_parameters` of newer files to where older files have the same: `rope_theta`, `rope_scaling`.
void unfold_rope_parameters(nlohmann::json& config, const ReportFault& report);

/// Adds what the families assume where the file is silent.
void add_family_defaults(nlohmann::json& config);

/// Sets `sliding_window` to 0 where no layer has it, and reports windows on some layers only.
void settle_window(nlohmann::json& config, const ReportFault& report);

/// Reports keys that ask for what no model here computes.
void refuse_other_models(const nlohmann::json& config, const ReportFault& report);

}  // namespace kformer::Impl
