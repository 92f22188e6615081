// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/dtype.hpp"
#include "kformer/memory/ledger.hpp"

/// \file
/// Where `merge_adapter` has the arrays of one projection.

namespace kformer::Impl {

/// A and B from the beginning, and for magnitudes also m, the norms of rows and their gains. In bytes.
struct MergeStaging {
  std::size_t magnitude, norm, gain, end;

  MergeStaging(std::int64_t rank, std::int64_t in, std::int64_t out, DType dtype) {
    MemoryLayout layout;
    const auto reserve = [&](std::int64_t count, std::size_t size) {
      return layout.reserve<std::byte>(count * static_cast<std::int64_t>(size));
    };
    const std::size_t computed = std::max(size_of(dtype), size_of(DType::f32));
    reserve(rank * (in + out), size_of(dtype));
    magnitude = reserve(out, size_of(dtype));
    norm = reserve(out, computed);
    gain = reserve(out, computed);
    end = layout.bytes();
  }
};

}  // namespace kformer::Impl
