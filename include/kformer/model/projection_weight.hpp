// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kformer/core/tensor_parts.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/model/weight_formats.hpp"
#include "kformer/ops/quantized.hpp"

/// \file
/// The matrices of a layer's linear map one by one, where some stay quantised.

namespace kformer {

/// A published matrix of a linear map, (rows, columns): dense, or quantised.
template <class MemorySpace, class U>
struct ProjectionWeight {
  /// Its elements.
  using Dense = Kokkos::View<U**, Kokkos::LayoutStride, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  /// Its blocks.
  using Blocks = Kokkos::View<std::byte*, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  std::string name;                       ///< such as "self_attn.q_proj.weight"
  std::int64_t rows = 0;                  ///< outputs
  std::int64_t columns = 0;               ///< inputs
  std::optional<QuantizedFormat> format;  ///< of its blocks; dense if there is none
  Dense dense{};                          ///< if it has no format
  Blocks blocks{};                        ///< if it has one

  /// The quantised matrix, to be read or written.
  QuantizedOutput quantized() const { return {*format, blocks.data(), rows, columns}; }
};

namespace Impl {

/// The matrices one by one if any of them stays quantised, else none: then they are one dense array.
template <class MemorySpace, class U, class Parts>
std::vector<ProjectionWeight<MemorySpace, U>> projection_weights(const Parts& parts, std::int64_t columns,
                                                                 const WeightFormats& formats) {
  std::vector<ProjectionWeight<MemorySpace, U>> all;
  bool any = false;
  for (const auto& part : parts) {
    const auto format = format_in(formats, part.name);
    any = any || format;
    all.push_back({part.name, part.count, columns, format});
  }
  if (!any) all.clear();
  return all;
}

/// Adds the arrays of the matrices to an arena.
template <class MemorySpace, class U>
void add_to(Arena<MemorySpace>& arena, std::vector<ProjectionWeight<MemorySpace, U>>& weights) {
  for (auto& w : weights)
    if (w.format)
      arena.add(w.blocks, static_cast<std::int64_t>(quantized_bytes(*w.format, w.rows, w.columns)));
    else
      arena.add(w.dense, w.rows, w.columns);
}

}  // namespace Impl

}  // namespace kformer
