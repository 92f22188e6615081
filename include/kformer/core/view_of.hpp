// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <string>
#include <utility>

#include "kformer/core/error.hpp"
#include "kformer/core/tensor_ref.hpp"

namespace kformer {

/// A View of the memory of a `TensorRef`, such as a weight of a model: `view_of<float**>(parameter.weight)`. It
/// owns nothing.
/// \tparam DataType    as of `Kokkos::View`, for instance `const bf16**`
/// \tparam MemorySpace where the memory is
/// \throws DimensionMismatch if storage type or rank are not those of `ref`
template <class DataType, class MemorySpace = Kokkos::DefaultExecutionSpace::memory_space>
auto view_of(const TensorRef& ref) {
  using Result =
      Kokkos::View<DataType, Kokkos::LayoutStride, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  using T = typename Result::value_type;
  constexpr int rank = static_cast<int>(Result::rank());
  constexpr DType dtype = dtype_of<T>;
  if (ref.rank != rank || ref.dtype != dtype)
    throw DimensionMismatch(std::string("kformer::view_of: the tensor has rank ") + std::to_string(ref.rank) +
                            " and storage type " + to_string(ref.dtype) + ", but the View has rank " +
                            std::to_string(rank) + " and " + to_string(dtype));
  return [&]<std::size_t... r>(std::index_sequence<r...>) {
    Kokkos::LayoutStride layout;
    ((layout.dimension[r] = static_cast<std::size_t>(ref.extent[r]),
      layout.stride[r] = static_cast<std::size_t>(ref.stride[r])),
     ...);
    return Result(static_cast<T*>(ref.data), layout);
  }(std::make_index_sequence<static_cast<std::size_t>(rank)>());
}

}  // namespace kformer
