// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>

namespace kformer::Impl::cuda {

enum class Half { bf16, f16 };

}  // namespace kformer::Impl::cuda
