// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "kformer/core/region.hpp"
#include "kformer/parallel/tree_order.hpp"
#include "kformer/train/data_parallel.hpp"
#include "ops/adamw/kokkos.hpp"

/// \file
/// Definitions of DataParallel's members that compute the norm of all gradients.

namespace kformer {

// `f(i, p)` for each piece of parameter p, the i-th, in their order.
template <class Exec>
template <class F>
void DataParallel<Exec>::for_pieces(F f) const {
  for (std::size_t i = 0; i < m_parameters.size(); ++i)
    for (std::int64_t at = 0; at < m_parameters[i].gradient.size(); at += Impl::adamw_piece)
      f(i, m_parameters[i]);
}

// In the order of the whole model, so that the norm does not depend on the stages.
template <class Exec>
typename DataParallel<Exec>::Pieces DataParallel<Exec>::of_all_stages(const Exec& exec, Pieces own) {
  if (!m_model.stages) return own;
  const int size = m_model.stages->communicator().size(), rank = m_model.stages->communicator().rank();
  const std::size_t parts = m_model.parts.size();
  // By rank and part: how many numbers there are, and then these, two for each piece.
  std::vector<double> own_counts(parts), numbers;
  std::size_t piece = 0;
  for_pieces([&](std::size_t i, const Parameter& p) {
    const auto part =
        static_cast<std::size_t>(std::ranges::upper_bound(m_model.parts, i) - m_model.parts.begin());
    const std::size_t at = piece++;
    if (p.copy) return;
    own_counts[part] += 2;
    numbers.insert(numbers.end(), {own.squares[at], own.slices[at] ? 1.0 : 0.0});
  });
  const std::vector<double> counts = m_model.stages->gather_values(exec, own_counts, "stage norm");
  const auto count_of = [&](int r, std::size_t part) {
    return counts[static_cast<std::size_t>(r) * parts + part];
  };
  std::vector<std::int64_t> ends(static_cast<std::size_t>(size));
  std::vector<std::int64_t> begins(counts.size());  // of the numbers of each part
  std::int64_t end = 0;
  for (int r = 0; r < size; ++r) {
    for (std::size_t part = 0; part < parts; ++part) {
      begins[static_cast<std::size_t>(r) * parts + part] = end;
      end += static_cast<std::int64_t>(count_of(r, part));
    }
    ends[static_cast<std::size_t>(r)] = end;
  }
  std::vector<double> all(static_cast<std::size_t>(end));
  std::ranges::copy(numbers, all.begin() + (ends[static_cast<std::size_t>(rank)] - std::ssize(numbers)));
  m_model.stages->gather_values(exec, all, ends, "stage norm");
  Pieces pieces;
  for (std::size_t part = 0; part < parts; ++part)
    for (int r = 0; r < size; ++r) {
      const auto begin = static_cast<std::size_t>(begins[static_cast<std::size_t>(r) * parts + part]);
      for (std::size_t i = begin; i < begin + static_cast<std::size_t>(count_of(r, part)); i += 2) {
        pieces.squares.push_back(all[i]);
        pieces.slices.push_back(all[i + 1] != 0);
      }
    }
  return pieces;
}

// Pieces that are whole on the ranks that divide the model count once.
template <class Exec>
double DataParallel<Exec>::square_sum(const Exec& exec, const Pieces& pieces) {
  Collectives<Exec>* const tensor = m_model.tensor;
  if (pieces.squares.empty()) return 0;
  const auto sum_of = [&](bool slices) {
    return tree_sum<double>(std::ssize(pieces.squares), [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      return !tensor || pieces.slices[at] == slices ? pieces.squares[at] : 0;
    });
  };
  if (!tensor) return sum_of(false);
  const double own = sum_of(true);
  const std::vector<double> of_ranks = tensor->gather_values(exec, std::span(&own, 1), "norm");
  return sum_of(false) + tree_sum<double>(std::ssize(of_ranks), [&](std::int64_t r) {
           return of_ranks[static_cast<std::size_t>(r)];
         });
}

// From the sums of squares of all pieces, in an order that does not depend on the ranks.
template <class Exec>
double DataParallel<Exec>::norm(const Exec& exec) {
  Region region("gradient_norm");
  const int size = ranks().size(), rank = ranks().rank();
  std::vector<AdamWParameter> own;
  for (const Parameter& p : m_shard) own.push_back({.weight = p.weight, .gradient = p.gradient});
  double* squares = m_squares.template at<double>(0);
  Impl::for_each_batch(
      own, [](const AdamWParameter&) { return true; },
      [&](const Impl::AdamWBatch& batch) {
        const auto launch = [&]<class C>(std::type_identity<C>) {
          Impl::gradient_norm_pieces<C>(exec, batch, squares);
        };
        if (own.front().gradient.dtype == DType::f64)
          launch(std::type_identity<double>{});
        else
          launch(std::type_identity<float>{});
        squares += batch.pieces;
      });
  std::vector<std::int64_t> ends;
  for (int r = 0; r < size; ++r) ends.push_back(m_shards.pieces_end(r));
  const std::int64_t before = rank > 0 ? ends[static_cast<std::size_t>(rank) - 1] : 0;
  auto* all = m_all_squares.template at<double>(0);
  transfer<HostStagingSpace<memory_space>, memory_space>(exec, *m_ledger, all + before,
                                                         m_squares.template at<double>(0), m_squares.bytes());
  exec.fence("kformer::DataParallel::norm");
  m_collectives.gather_values(exec, {all, static_cast<std::size_t>(ends.back())}, ends, "norm");
  Pieces pieces{.squares = {}, .slices = m_is_slice};
  for (const std::int64_t place : m_shards.places()) pieces.squares.push_back(all[place]);
  return std::sqrt(square_sum(exec, of_all_stages(exec, std::move(pieces))));
}

}  // namespace kformer
