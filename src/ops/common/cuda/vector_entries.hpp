// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "kformer/core/tensor_ref.hpp"
#include "ops/common/cuda/device.hpp"
#include "ops/common/cuda/vectors.hpp"

/// \file
/// What entries refuse whose kernels access 16 bytes at a time.

namespace kformer::Impl::cuda {

/// The least compute capability: that of the instructions that round two numbers to bf16.
inline constexpr int vector_capability = 80;

/// Threads and blocks are numbered by 32 bits.
inline constexpr std::int64_t most_pieces = std::int64_t(1) << 30;

inline std::string storage_refusal(DType dtype) {
  if (dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16) return {};
  return std::string("operands are stored as ") + to_string(dtype) + ", but it supports only f32, bf16 and f16";
}

/// Empty if each row of each operand that is present is aligned to 16 bytes, otherwise the reason.
inline std::string alignment_refusal(std::initializer_list<std::pair<const char*, const TensorRef*>> operands) {
  for (const auto& [role, x] : operands) {
    if (!x->present() || x->size() == 0) continue;
    if (reinterpret_cast<std::uintptr_t>(x->data) % 16 != 0)
      return std::string(role) + " is not aligned to 16 bytes";
    for (int r = 0; r + 1 < x->rank; ++r)
      if (x->extent[r] > 1 && x->stride[r] * static_cast<std::int64_t>(size_of(x->dtype)) % 16 != 0)
        return std::string(role) + " has a stride of " + std::to_string(x->stride[r]) +
               " elements, which is not a multiple of 16 bytes";
  }
  return {};
}

/// Empty if work comes in no more pieces than can be numbered, else a sentence.
inline std::string count_refusal(std::int64_t pieces) {
  if (pieces <= most_pieces) return {};
  return "it would have " + std::to_string(pieces) + " pieces of work, more than 2^30";
}

/// Empty if a row of `elements` consists of whole chunks of 16 bytes, else a sentence.
inline std::string row_refusal(std::int64_t elements, DType dtype) {
  const std::int64_t bytes = elements * static_cast<std::int64_t>(size_of(dtype));
  if (bytes % 16 == 0) return {};
  return "a row has " + std::to_string(bytes) + " bytes, which is not a multiple of 16";
}

}  // namespace kformer::Impl::cuda
