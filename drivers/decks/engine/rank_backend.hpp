// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

/// \file
/// Through what ranks send messages.

namespace kformer {

/// Through what ranks send messages.
enum class RankBackend {
  mpi,  ///< all of them through MPI
  nccl  ///< those of GPUs through NCCL, which is started through MPI
};
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<RankBackend> = {"mpi", "nccl"};

}  // namespace kformer
