// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "kformer/core/types/stored_type.hpp"

/// \file
/// The numbers of tensors in files.

namespace kformer::Impl {

/// F64, F32, F16 and BF16 as double; nothing for any other type. The bytes need not be aligned.
std::optional<std::vector<double>> numbers_of(const StoredType& type, std::span<const std::byte> bytes);

}  // namespace kformer::Impl
