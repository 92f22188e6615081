// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "kformer/core/enum_names.hpp"
#include "kformer/io/model_table.hpp"

namespace kformer::Impl::schema {

/// The contradictions between the keys that are not 0; nothing is derived.
std::vector<ModelFault> model_faults(const ModelTable& model);

}  // namespace kformer::Impl::schema
