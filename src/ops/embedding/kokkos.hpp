// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/embedding.hpp"
#include "kformer/ops/impl/launch.hpp"

/// \file
/// The portable kernels of the embedding: one team per row forward; backward, one team per class of ids and
/// block of columns.

namespace kformer::Impl {

template <class T, class Exec>
void embedding_forward_kokkos(const Exec& exec, const EmbeddingForward& p) {
  const auto ids = p.ids.as<const std::int32_t, 1>();
  const auto weight = p.weight.as<const T, 2>();
  const auto y = p.y.as<T, 2>();
  const std::int64_t vocabulary = p.weight.extent[0], hidden = p.weight.extent[1];
  Kokkos::parallel_for(
      "kformer::embedding_forward[kokkos]", team_policy(exec, p.ids.extent[0], hidden),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank(), id = ids(row);
        const bool valid = id >= 0 && id < vocabulary;
        const T* from = weight.data + (valid ? id * weight.stride[0] : 0);
        T* to = y.data + row * y.stride[0];
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, hidden), [&](std::int64_t h) {
          to[h] = valid ? from[h] : T(Kokkos::Experimental::quiet_NaN_v<compute_t<T>>);
        });
      });
}

/// Ids are assigned to classes by their remainder, columns to blocks. A team walks all ids in order and adds
/// the rows of its class in its columns: no two teams share an element, each element is summed in the order of
/// the rows, and how many classes and blocks there are cannot be seen in the result. More of them feed more
/// cores, but each walks the ids.
template <class Exec>
inline constexpr std::int64_t embedding_classes = is_host_space<Exec> ? 64 : 256;
template <class Exec>
inline constexpr std::int64_t embedding_columns = is_host_space<Exec> ? 4096 : 1024;

template <class T, class Exec>
void embedding_backward_kokkos(const Exec& exec, const EmbeddingBackward& p) {
  using C = compute_t<T>;
  const auto ids = p.ids.as<const std::int32_t, 1>();
  const auto dy = p.dy.as<const T, 2>();
  const auto dweight = p.dweight.as<C, 2>();
  const std::int64_t rows = p.ids.extent[0], vocabulary = p.dweight.extent[0], hidden = p.dweight.extent[1];
  constexpr std::int64_t classes = embedding_classes<Exec>, columns = embedding_columns<Exec>;
  Kokkos::parallel_for(
      "kformer::embedding_backward[kokkos]", team_policy(exec, classes * ceil_div(hidden, columns), hidden),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t mine = team.league_rank() % classes;
        const std::int64_t begin = team.league_rank() / classes * columns;
        const std::int64_t end = Kokkos::min(hidden, begin + columns);
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::int64_t id = ids.data[row];
          if (id % classes != mine || id < 0 || id >= vocabulary) continue;
          const T* from = dy.data + row * dy.stride[0];
          C* to = dweight.data + id * dweight.stride[0];
          // Each thread meets the same columns in every row, so rows need no barrier between them.
          Kokkos::parallel_for(Kokkos::TeamVectorRange(team, begin, end),
                               [&](std::int64_t h) { to[h] += static_cast<C>(from[h]); });
        }
      });
}

}  // namespace kformer::Impl
