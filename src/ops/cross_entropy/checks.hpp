// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/cross_entropy.hpp"

namespace kformer::Impl {

/// The checks of the options, under the name of the function that `all` belongs to.
/// \param computed the type of arithmetic
void require_options(const Operands& all, const CrossEntropyOptions& options, DType computed);

}  // namespace kformer::Impl
