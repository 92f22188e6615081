// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/cross_entropy.hpp"

namespace kformer::Impl {

/// The checks of the options, under the name of the function that `all` belongs to.
const Operands& require_options(const Operands& all, const CrossEntropyOptions& options);

}  // namespace kformer::Impl
