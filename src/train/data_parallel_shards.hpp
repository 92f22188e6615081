// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <vector>

#include "kformer/train/data_parallel.hpp"
#include "parallel/gradient_tree.hpp"

/// \file
/// Definitions of DataParallel's members that reduce the gradients of a micro-batch, with `ZeroStage::gradients`.

namespace kformer {

namespace Impl {

inline std::vector<TensorRef> arrays_of(const std::vector<Parameter>& parameters,
                                        TensorRef Parameter::* member) {
  std::vector<TensorRef> all;
  for (const Parameter& p : parameters) all.push_back(p.*member);
  return all;
}

}  // namespace Impl

// Of a group whose gradients are those of a micro-batch.
template <class Exec>
void DataParallel<Exec>::begin_shards(const Exec& exec, std::size_t group) {
  const ParameterGroup& g = m_groups[group];
  finish_group(exec);
  add_partial_gradients(exec, g);
  m_begun = group;
  m_collectives.begin_reduce_shards(exec, Impl::arrays_of(m_parameters, &Parameter::gradient), m_shards,
                                    "gradients", {g.begin, g.end});
}

template <class Exec>
void DataParallel<Exec>::add_nothing(const Exec& exec, std::size_t group) {
  if (is_tied(m_groups[group])) return;
  clear_gradients(exec, m_groups[group]);
  add_group(exec, group);
  finish_group(exec);
}

// Two stages make its gradients, at different times. Unless their sum has a fixed order, each adds up its own until the end
// of the step.
template <class Exec>
bool DataParallel<Exec>::is_tied(const ParameterGroup& group) const {
  return std::any_of(m_parameters.begin() + static_cast<std::ptrdiff_t>(group.begin),
                     m_parameters.begin() + static_cast<std::ptrdiff_t>(group.end),
                     [](const Parameter& p) { return p.tied; });
}

// The sum over the ranks becomes part of that of the micro-batches.
template <class Exec>
void DataParallel<Exec>::finish_group(const Exec& exec) {
  if (!m_begun) return;
  m_collectives.finish_reductions(exec);
  const ParameterGroup& g = m_groups[*m_begun];
  take_own(exec, g, !m_tree);
  if (m_tree) m_tree->add(exec, m_leaves[*m_begun]++, own_batches(), {g.begin, g.end});
  m_begun.reset();
}

// From the gradients to the shard, whose sums they replace, or with `add` become a part of.
template <class Exec>
void DataParallel<Exec>::take_own(const Exec& exec, ParameterGroup group, bool add) {
  for (std::size_t i = group.begin; i < group.end; ++i) {
    const TensorRef part = part_of(m_parameters[i].gradient, own_ranges()[i]);
    Impl::copy_or_add(exec, part, m_shard[i].gradient.data, part.data, add);
  }
}

// With `ZeroStage::gradients`, at the end of a step.
template <class Exec>
void DataParallel<Exec>::reduce_tied(const Exec& exec, std::size_t group) {
  const ParameterGroup& g = m_groups[group];
  if (m_tree) gather_sum(exec, g);
  add_up_ends(exec, g);
  if (m_tree) return take_own(exec, g, false);
  begin_shards(exec, group);
  finish_group(exec);
}

// The first stage has its sum in shards, and the last may have others.
template <class Exec>
void DataParallel<Exec>::gather_sum(const Exec& exec, ParameterGroup group) {
  if (m_parameters[group.begin].copy) return;
  for (std::size_t i = group.begin; i < group.end; ++i) {
    const TensorRef part = part_of(m_parameters[i].gradient, own_ranges()[i]);
    Impl::copy_or_add(exec, part, part.data, m_shard[i].gradient.data, false);
  }
  m_collectives.gather_shards(exec, Impl::arrays_of(m_parameters, &Parameter::gradient), m_shards, "gradients",
                              {group.begin, group.end});
}

}  // namespace kformer
