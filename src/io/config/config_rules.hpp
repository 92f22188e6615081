// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

/// \file
/// The rules of config.json.

namespace kformer::Impl {

/// Takes a fault: a sentence that begins with the key.
using ReportFault = std::function<void(const std::string&)>;

/// Sets `model_type` if only `architectures` names the family, and reports unknown families.
void settle_family(nlohmann::json& config, const ReportFault& report);

/// Applies what config.json files mean for a layer of their family: defaults, newer keys, and windows. Sets `sliding_window`
/// to 0 where no layer has it, and reports keys that ask for unsupported computations.
void settle_layer(nlohmann::json& config, const ReportFault& report);

/// Reports weights in formats that are not read.
void refuse_other_quantization(const nlohmann::json& config, const ReportFault& report);

}  // namespace kformer::Impl
