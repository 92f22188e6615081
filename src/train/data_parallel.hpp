// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <numeric>
#include <string>

#include "kformer/core/option_checks.hpp"
#include "kformer/core/region.hpp"
#include "kformer/parallel/tree_order.hpp"
#include "kformer/train/data_parallel.hpp"
#include "ops/adamw/kokkos.hpp"

/// \file
/// Definitions of the members of DataParallel.

namespace kformer {

namespace Impl {

inline DataParallelOptions with_ranks(DataParallelOptions options) {
  if (!options.ranks) options.ranks = std::make_shared<LoneCommunicator>();
  require_enumerator("DataParallel", "zero", options.zero);
  if (options.micro_batches < 1)
    throw NotSupported("kformer::DataParallel: micro_batches must be at least 1, got " +
                       std::to_string(options.micro_batches));
  return options;
}

inline Shards shards_of(const std::vector<Parameter>& parameters, int ranks) {
  std::vector<std::int64_t> sizes;
  for (const Parameter& p : parameters) {
    if (!p.gradient.present())
      throw DimensionMismatch("kformer::DataParallel: '" + p.name +
                              "' has no gradient; construct the model with LayerMode::training");
    sizes.push_back(p.gradient.size());
  }
  // Pieces of the optimizer's kernels, so that a shard has whole blocks of 8-bit states.
  return Shards(sizes, adamw_piece, ranks);
}

/// The parts of some parameters that are in a shard. What decayed as a matrix does so as a vector.
inline std::vector<Parameter> shard_of(const std::vector<Parameter>& parameters,
                                       const std::vector<ArrayRange>& ranges) {
  std::vector<Parameter> parts;
  for (const ArrayRange& range : ranges) {
    Parameter part = parameters[range.array];
    part.vector_decays |= part.weight.rank > 1;
    part.weight = part_of(part.weight, range);
    part.gradient = part_of(part.gradient, range);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace Impl

template <class Exec>
DataParallel<Exec>::DataParallel(const DataParallelOptions& options, std::vector<Parameter> parameters,
                                 Ledger& ledger)
    : m_options(Impl::with_ranks(options)),
      m_ledger(ledger.shared_from_this()),
      m_parameters(std::move(parameters)),
      m_collectives(m_options.ranks, m_options.collectives, ledger),
      m_shards(Impl::shards_of(m_parameters, ranks().size())),
      m_shard(Impl::shard_of(m_parameters, own_ranges())) {
  if (m_options.fixed_order) m_tree.emplace(arrays(&Parameter::gradient), m_options.micro_batches, ledger);
  const int rank = ranks().rank();
  const std::int64_t before = rank > 0 ? m_shards.pieces_end(rank - 1) : 0;
  const auto bytes = [](std::int64_t pieces) { return static_cast<std::size_t>(pieces) * sizeof(double); };
  m_squares = ledger.allocate<memory_space>(MemoryClass::communication, "DataParallel::squares",
                                            bytes(m_shards.pieces_end(rank) - before));
  m_all_squares = ledger.allocate<HostStagingSpace<memory_space>>(
      MemoryClass::communication, "DataParallel::all_squares", bytes(m_shards.pieces_end(ranks().size() - 1)));
}

template <class Exec>
std::vector<TensorRef> DataParallel<Exec>::arrays(TensorRef Parameter::* member) const {
  std::vector<TensorRef> all;
  for (const Parameter& p : m_parameters) all.push_back(p.*member);
  return all;
}

template <class Exec>
const StepShare& DataParallel<Exec>::begin_step(const Exec& exec, std::int64_t sequences, std::int64_t tokens,
                                                std::int64_t batch) {
  const int size = ranks().size(), rank = ranks().rank();
  std::vector<double> counts(2 * static_cast<std::size_t>(size));
  std::vector<std::int64_t> ends;
  for (int r = 1; r <= size; ++r) ends.push_back(2 * r);
  const std::size_t own = 2 * static_cast<std::size_t>(rank);
  counts[own] = static_cast<double>(sequences);
  counts[own + 1] = static_cast<double>(tokens);
  m_collectives.gather_values(exec, counts, ends, "counts");
  m_share = {};
  m_done = 0;
  std::int64_t all_sequences = 0;
  bool whole = true;  // whether all micro-batches so far are
  for (int r = 0; r < size; ++r) {
    const auto of_rank = static_cast<std::int64_t>(counts[2 * static_cast<std::size_t>(r)]);
    if (r == rank) m_share.first = all_sequences;
    if (of_rank > 0 && !whole)
      throw NotSupported(
          "kformer::DataParallel: a rank before rank " + std::to_string(r) +
          " has no multiple of the micro-batch, which is " + std::to_string(batch) +
          " sequences; only the last rank that has sequences may have other numbers (LeafBlocks)");
    whole = whole && of_rank % batch == 0;
    all_sequences += of_rank;
    m_share.tokens += static_cast<std::int64_t>(counts[2 * static_cast<std::size_t>(r) + 1]);
    m_share.batches.push_back((of_rank + batch - 1) / batch);
  }
  if (m_options.fixed_order) {
    const auto leaves = std::accumulate(m_share.batches.begin(), m_share.batches.end(), std::int64_t(0));
    const LeafBlocks blocks = LeafBlocks::of(leaves, size);
    bool as_blocks = blocks.are_nodes();
    for (int r = 0; r < size; ++r)
      as_blocks = as_blocks && m_share.batches[static_cast<std::size_t>(r)] == blocks.end(r) - blocks.begin(r);
    if (!as_blocks)
      throw NotSupported("kformer::DataParallel: with fixed_order each of " + std::to_string(size) +
                         " ranks takes as many micro-batches, a power of two, of which the last may lack some "
                         "but not all; " +
                         std::to_string(leaves) + " micro-batches are not divided so");
  }
  // What it sends must be the sum of nothing.
  if (sequences == 0) clear_gradients(exec);
  return m_share;
}

template <class Exec>
void DataParallel<Exec>::clear_gradients(const Exec& exec) {
  using Bytes = Kokkos::View<std::byte*, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  for (const Parameter& p : m_parameters)
    Kokkos::deep_copy(exec,
                      Bytes(static_cast<std::byte*>(p.gradient.data),
                            static_cast<std::size_t>(p.gradient.size()) * size_of(p.gradient.dtype)),
                      std::byte{});
}

template <class Exec>
void DataParallel<Exec>::add_micro_batch(const Exec& exec) {
  if (m_tree) m_tree->add(exec, m_done, m_share.batches[static_cast<std::size_t>(ranks().rank())]);
  ++m_done;
}

template <class Exec>
double DataParallel<Exec>::sum(const Exec& exec, std::span<const double> values) {
  std::vector<std::int64_t> ends;
  std::int64_t end = 0;
  for (const std::int64_t batches : m_share.batches) ends.push_back(end += batches);
  std::vector<double> all(static_cast<std::size_t>(end));
  const auto own = static_cast<std::size_t>(ends[static_cast<std::size_t>(ranks().rank())]) - values.size();
  std::ranges::copy(values, all.begin() + static_cast<std::ptrdiff_t>(own));
  m_collectives.gather_values(exec, all, ends, "losses");
  return tree_sum<double>(end, [&](std::int64_t i) { return all[static_cast<std::size_t>(i)]; });
}

template <class Exec>
double DataParallel<Exec>::reduce(const Exec& exec) {
  const std::vector<TensorRef> gradients = arrays(&Parameter::gradient);
  m_collectives.reduce_shards(exec, gradients, m_shards, "gradients");
  const double length = norm(exec);
  if (!is_sharded()) m_collectives.gather_shards(exec, gradients, m_shards, "gradients");
  return length;
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
  if (ends.back() == 0) return 0;
  return std::sqrt(tree_sum<double>(ends.back(), [&](std::int64_t i) { return all[i]; }));
}

template <class Exec>
void DataParallel<Exec>::publish(const Exec& exec) {
  if (is_sharded()) m_collectives.gather_shards(exec, arrays(&Parameter::weight), m_shards, "weights");
}

}  // namespace kformer
