// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "kformer/core/option_checks.hpp"
#include "kformer/core/region.hpp"
#include "kformer/parallel/tree_order.hpp"
#include "kformer/train/data_parallel.hpp"
#include "ops/adamw/kokkos.hpp"
#include "parallel/gradient_tree.hpp"
#include "train/data_parallel_norm.hpp"
#include "train/data_parallel_shards.hpp"

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
  if (options.context < 1 || options.ranks->size() % options.context != 0)
    throw NotSupported("kformer::DataParallel: " + std::to_string(options.ranks->size()) +
                       " ranks are no multiple of the " + std::to_string(options.context) +
                       " that divide the tokens (context); take RankGrid::replicas()");
  if (options.context > 1 && options.fixed_order)
    throw NotSupported(
        "kformer::DataParallel: fixed_order adds up whole micro-batches, but ranks divide their tokens "
        "(context); leave out one");
  if (options.overlap) options.collectives.chunk_bytes = options.bucket_bytes;
  return options;
}

inline Shards shards_of(const std::vector<Parameter>& parameters, const std::vector<ParameterGroup>& groups,
                        int ranks) {
  std::vector<std::int64_t> sizes;
  std::vector<std::size_t> ends;
  for (const ParameterGroup& group : groups) ends.push_back(group.end);
  std::ranges::sort(ends);
  for (const Parameter& p : parameters) {
    if (!p.gradient.present())
      throw DimensionMismatch("kformer::DataParallel: '" + p.name +
                              "' has no gradient; construct the model with LayerMode::training");
    sizes.push_back(p.gradient.size());
  }
  // Pieces of the optimizer's kernels, so that a shard has whole blocks of 8-bit states.
  return Shards(sizes, adamw_piece, ranks, ends);
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

template <class Exec>
void clear_bytes(const Exec& exec, void* data, std::size_t bytes) {
  using Bytes = Kokkos::View<std::byte*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  Kokkos::deep_copy(exec, Bytes(static_cast<std::byte*>(data), bytes), std::byte{});
}

/// What is summed over micro-batches in a fixed order. The first stage does so with the gradient of what it has a copy of.
inline std::vector<TensorRef> leaves_of(const std::vector<Parameter>& parameters) {
  std::vector<TensorRef> all;
  for (const Parameter& p : parameters) all.push_back(p.copy ? part_of(p.gradient, {}) : p.gradient);
  return all;
}

}  // namespace Impl

template <class Exec>
DataParallel<Exec>::DataParallel(const DataParallelOptions& options, std::vector<Parameter> parameters,
                                 std::vector<ParameterGroup> groups, Ledger& ledger, ModelRanks<Exec> model)
    : m_options(Impl::with_ranks(options)),
      m_ledger(ledger.shared_from_this()),
      m_parameters(std::move(parameters)),
      m_groups(std::move(groups)),
      m_collectives(m_options.ranks, m_options.collectives, ledger),
      m_model(std::move(model)),
      m_shards(Impl::shards_of(m_parameters, m_groups, ranks().size())),
      m_shard(Impl::shard_of(m_parameters, own_ranges())) {
  if (divides_gradients()) place_sums(ledger);
  if (m_options.fixed_order)
    m_tree.emplace(Impl::leaves_of(divides_gradients() ? m_shard : m_parameters), m_options.micro_batches,
                   ledger);
  const int rank = ranks().rank();
  const std::int64_t before = rank > 0 ? m_shards.pieces_end(rank - 1) : 0;
  const auto bytes = [](std::int64_t pieces) { return static_cast<std::size_t>(pieces) * sizeof(double); };
  m_squares = ledger.allocate<memory_space>(MemoryClass::communication, "DataParallel::squares",
                                            bytes(m_shards.pieces_end(rank) - before));
  m_all_squares = ledger.allocate<HostStagingSpace<memory_space>>(
      MemoryClass::communication, "DataParallel::all_squares", bytes(m_shards.pieces_end(ranks().size() - 1)));
  for_pieces([&](std::size_t, const Parameter& p) { m_is_slice.push_back(p.slice.divides()); });
}

// Each array starts as the optimizer's do.
template <class Exec>
void DataParallel<Exec>::place_sums(Ledger& ledger) {
  const auto place = [&] {
    MemoryLayout layout;
    for (Parameter& p : m_shard) {
      const std::size_t at = dispatch_dtype(p.gradient.dtype, [&]<class C>(std::type_identity<C>) {
        return layout.reserve<C>(p.gradient.size());
      });
      p.gradient.data = m_sums.template at<std::byte>(at);
    }
    return layout.bytes();
  };
  m_sums = ledger.allocate<memory_space>(MemoryClass::gradients, "DataParallel::sums", place());
  place();
}

template <class Exec>
const StepShare& DataParallel<Exec>::begin_step(const Exec& exec, std::int64_t sequences, std::int64_t tokens,
                                                std::int64_t batch, const ComputedTokens& computed) {
  const int size = ranks().size(), rank = ranks().rank();
  const std::array own{static_cast<double>(sequences), static_cast<double>(tokens),
                       static_cast<double>(computed.tokens), static_cast<double>(computed.pairs)};
  const std::vector<double> counts = m_collectives.gather_values(exec, own, "counts");
  m_share = {};
  m_done = 0;
  m_next_group = 0;
  m_leaves.assign(m_groups.size(), 0);
  std::vector<std::int64_t> of_ranks;  // once for those that divide tokens
  for (int r = 0; r < size; ++r) {
    const std::size_t at = own.size() * static_cast<std::size_t>(r);
    if (r % m_options.context == 0) {
      of_ranks.push_back(static_cast<std::int64_t>(counts[at]));
      m_share.computed.tokens += static_cast<std::int64_t>(counts[at + 2]);
      m_share.computed.pairs += static_cast<std::int64_t>(counts[at + 3]);
    }
    m_share.tokens += static_cast<std::int64_t>(counts[at + 1]);
    m_share.batches.push_back((static_cast<std::int64_t>(counts[at]) + batch - 1) / batch);
  }
  const int place = rank / m_options.context;
  if (divides_gradients()) {
    check_turns(of_ranks, batch);
    m_share.first = place * batch;
    m_share.stride = std::ssize(of_ranks) * batch;
  } else {
    check_blocks(of_ranks, batch);
    m_share.first = std::accumulate(of_ranks.begin(), of_ranks.begin() + place, std::int64_t(0));
    m_share.stride = batch;
  }
  if (m_options.fixed_order) check_order();
  if (divides_gradients() && !m_tree) Impl::clear_bytes(exec, m_sums.data(), m_sums.bytes());
  // What it sends must be the sum of nothing.
  if (sequences == 0 && !divides_gradients()) clear_gradients(exec, {0, m_parameters.size()});
  return m_share;
}

template <class Exec>
void DataParallel<Exec>::check_blocks(std::span<const std::int64_t> sequences, std::int64_t batch) const {
  bool whole = true;  // whether all micro-batches so far are
  for (std::size_t r = 0; r < sequences.size(); ++r) {
    if (sequences[r] > 0 && !whole)
      throw NotSupported(
          "kformer::DataParallel: a rank before rank " + std::to_string(r) +
          " has no multiple of the micro-batch, which is " + std::to_string(batch) +
          " sequences; only the last rank that has sequences may have other numbers (LeafShares)");
    whole = whole && sequences[r] % batch == 0;
  }
}

template <class Exec>
void DataParallel<Exec>::check_turns(std::span<const std::int64_t> sequences, std::int64_t batch) const {
  const LeafShares dealt = shares();
  for (std::size_t r = 0; r < sequences.size(); ++r) {
    const std::int64_t count = dealt.count(static_cast<int>(r));
    const bool has_last = dealt.leaves > 0 && (dealt.leaves - 1) % dealt.ranks == static_cast<std::int64_t>(r);
    if (m_share.batches[r * static_cast<std::size_t>(m_options.context)] != count ||
        (!has_last && sequences[r] % batch != 0))
      throw NotSupported("kformer::DataParallel: rank " + std::to_string(r) + " has " +
                         std::to_string(sequences[r]) + " sequences; with ZeroStage::gradients the " +
                         std::to_string(dealt.leaves) + " micro-batches of " + std::to_string(batch) +
                         " are dealt in turns (LeafShares), and only the last may have fewer");
  }
}

template <class Exec>
void DataParallel<Exec>::check_order() const {
  const LeafShares dealt = shares();
  bool as_dealt = dealt.keep_order();
  for (int r = 0; r < dealt.ranks; ++r)
    as_dealt = as_dealt && m_share.batches[static_cast<std::size_t>(r)] == dealt.count(r);
  if (as_dealt) return;
  throw NotSupported("kformer::DataParallel: with fixed_order each of " + std::to_string(dealt.ranks) +
                     " ranks takes as many micro-batches, " +
                     (divides_gradients()
                          ? "and with ZeroStage::gradients the ranks are a power of two, unless each has one; "
                          : "a power of two, of which the last may lack some but not all; ") +
                     std::to_string(dealt.leaves) + " micro-batches are not divided so");
}

// Of the micro-batches of this step.
template <class Exec>
LeafShares DataParallel<Exec>::shares() const {
  const std::int64_t all = std::accumulate(m_share.batches.begin(), m_share.batches.end(), std::int64_t(0));
  return {all / m_options.context, ranks().size() / m_options.context, divides_gradients()};
}

template <class Exec>
void DataParallel<Exec>::clear_gradients(const Exec& exec, ParameterGroup group) {
  for (std::size_t i = group.begin; i < group.end; ++i) {
    const TensorRef& gradient = m_parameters[i].gradient;
    Impl::clear_bytes(exec, gradient.data, static_cast<std::size_t>(gradient.size()) * size_of(gradient.dtype));
  }
}

template <class Exec>
bool DataParallel<Exec>::is_last_micro_batch() const {
  return m_done + 1 == own_batches();
}

template <class Exec>
void DataParallel<Exec>::add_group(const Exec& exec, std::size_t group) {
  const ParameterGroup& g = m_groups[group];
  if (divides_gradients()) {
    if (is_tied(g) && !m_tree) return;
    begin_shards(exec, group);
    if (!m_options.overlap) finish_group(exec);
  } else if (m_options.overlap && is_last_micro_batch()) {
    if (m_tree) m_tree->add(exec, m_done, m_done + 1, {g.begin, g.end});
    begin_group(exec, group);
  }
}

// Of one whose gradients are those of the step.
template <class Exec>
void DataParallel<Exec>::begin_group(const Exec& exec, std::size_t group) {
  const ParameterGroup& g = m_groups[group];
  m_next_group = group + 1;
  m_collectives.poll(exec);  // what was begun with the group before
  add_partial_gradients(exec, g);
  if (m_bucket.begin != g.end) begin_bucket(exec);
  m_bucket = {g.begin, m_bucket.end > m_bucket.begin ? m_bucket.end : g.end};
  if (bytes_of(m_bucket) >= m_options.bucket_bytes) begin_bucket(exec);
}

template <class Exec>
std::size_t DataParallel<Exec>::bytes_of(ParameterGroup group) const {
  std::size_t bytes = 0;
  for (std::size_t i = group.begin; i < group.end; ++i)
    bytes +=
        static_cast<std::size_t>(m_parameters[i].gradient.size()) * size_of(m_parameters[i].gradient.dtype);
  return bytes;
}

template <class Exec>
void DataParallel<Exec>::begin_bucket(const Exec& exec) {
  if (m_bucket.end > m_bucket.begin)
    m_collectives.begin_reduce_shards(exec, Impl::arrays_of(m_parameters, &Parameter::gradient), m_shards,
                                      "gradients", {m_bucket.begin, m_bucket.end});
  m_bucket = {};
}

template <class Exec>
void DataParallel<Exec>::add_micro_batch(const Exec& exec) {
  finish_group(exec);
  const bool added = divides_gradients() || (m_options.overlap && is_last_micro_batch());
  if (m_tree && !added) m_tree->add(exec, m_done, own_batches());
  ++m_done;
}

template <class Exec>
void DataParallel<Exec>::add_part(const Exec& exec, std::size_t part, std::int64_t micro_batch,
                                  PipelineWork work) {
  if (!m_tree) return;
  for (std::size_t i = part > 0 ? m_model.parts[part - 1] : 0; i < m_model.parts[part]; ++i) {
    const bool waits = !m_model.waiting.empty() && m_model.waiting[i];
    if (waits != (work == PipelineWork::weights)) continue;
    m_tree->add(exec, micro_batch, own_batches(), {i, i + 1});
    const bool is_sum = micro_batch + 1 == own_batches();
    if (m_model.adds_to_gradients && !is_sum) clear_gradients(exec, {i, i + 1});
  }
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
  if (end == 0) return 0;
  // By leaf. Blocks may be of any size where the order is not fixed.
  std::vector<double> leaves(all);
  if (divides_gradients()) {
    const LeafShares dealt = shares();
    std::ranges::fill(leaves, 0);
    auto next = all.begin();
    for (int r = 0; r < ranks().size(); ++r) {
      const int place = r / m_options.context;
      for (std::int64_t k = 0; k < dealt.count(place); ++k)
        leaves[static_cast<std::size_t>(dealt.leaf(place, k))] += *next++;
    }
  }
  return tree_sum<double>(end, [&](std::int64_t i) { return leaves[static_cast<std::size_t>(i)]; });
}

template <class Exec>
double DataParallel<Exec>::reduce(const Exec& exec) {
  if (divides_gradients()) {
    for (; m_done < rounds(); ++m_done)
      for (std::size_t group = 0; group < m_groups.size(); ++group) add_nothing(exec, group);
    for (std::size_t group = 0; group < m_groups.size(); ++group)
      if (is_tied(m_groups[group])) reduce_tied(exec, group);
    return norm(exec);
  }
  const std::vector<TensorRef> gradients = Impl::arrays_of(m_parameters, &Parameter::gradient);
  if (m_options.overlap) {
    // Those of a rank without a micro-batch, which has none that ends.
    while (m_next_group < m_groups.size()) begin_group(exec, m_next_group);
    begin_bucket(exec);
    m_collectives.finish_reductions(exec);
  } else {
    add_partial_gradients(exec, {0, m_parameters.size()});
    add_up_ends(exec, {0, m_parameters.size()});
    m_collectives.reduce_shards(exec, gradients, m_shards, "gradients");
  }
  const double length = norm(exec);
  if (!is_sharded()) m_collectives.gather_shards(exec, gradients, m_shards, "gradients");
  return length;
}

namespace Impl {

/// The sum of a gradient over ranks, in its place.
template <class Exec>
void sum_gradient(const Exec& exec, Collectives<Exec>& ranks, const TensorRef& gradient) {
  dispatch_dtype(gradient.dtype, [&]<class C>(std::type_identity<C>) {
    using Numbers = Kokkos::View<C*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    ranks.all_reduce(exec, Numbers(static_cast<C*>(gradient.data), static_cast<std::size_t>(gradient.size())),
                     "gradients");
  });
}

}  // namespace Impl

// Of weights that are whole on ranks which divide the rest.
template <class Exec>
void DataParallel<Exec>::add_partial_gradients(const Exec& exec, ParameterGroup group) {
  for (std::size_t i = group.begin; i < group.end; ++i)
    if (m_model.tensor && m_parameters[i].partial_gradient)
      Impl::sum_gradient(exec, *m_model.tensor, m_parameters[i].gradient);
}

// Of weights that two stages have.
template <class Exec>
void DataParallel<Exec>::add_up_ends(const Exec& exec, ParameterGroup group) {
  for (std::size_t i = group.begin; i < group.end; ++i)
    if (m_model.ends && m_parameters[i].tied) Impl::sum_gradient(exec, *m_model.ends, m_parameters[i].gradient);
}

template <class Exec>
void DataParallel<Exec>::publish(const Exec& exec) {
  if (is_sharded())
    m_collectives.gather_shards(exec, Impl::arrays_of(m_parameters, &Parameter::weight), m_shards, "weights");
}

}  // namespace kformer
