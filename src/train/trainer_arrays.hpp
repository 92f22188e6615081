// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/train/trainer.hpp"

/// \file
/// Definitions of Trainer's members that name its arrays.

namespace kformer {

namespace Impl {

/// The arrays of a parameter, by `add(prefix, array, elements of the parameter per element)`.
template <class Add>
void for_each_array(const AdamWParameter& p, Add add) {
  add("", p.weight, 1);
  add("optimizer.master.", p.master, 1);
  add("optimizer.m.", p.m, 1);
  add("optimizer.v.", p.v, 1);
  add("optimizer.m_scale.", p.m_scale, adamw_block);
  add("optimizer.v_scale.", p.v_scale, adamw_block);
}

/// A part of an array that belongs to a parameter, from element `begin` of what this rank has of the parameter on.
/// \param per_element elements of the parameter per element of the array, which no two ranks share
inline NamedArray part_named(const std::string& name, const TensorRef& array, const Parameter& p,
                             std::int64_t begin, std::int64_t per_element) {
  const std::int64_t columns = p.weight.rank > 1 ? p.weight.extent[1] : 1;
  const ArraySlice& slice = p.slice;
  if (slice.divides() && slice.axis == 1)
    return {name,
            array,
            begin / per_element,
            {slice.begin / per_element, (slice.begin + columns) / per_element, slice.whole / per_element}};
  return {name, array, (slice.begin * columns + begin) / per_element};
}

}  // namespace Impl

template <class Exec, Scalar T>
std::vector<NamedArray> Trainer<Exec, T>::arrays() const {
  std::vector<NamedArray> all;
  const bool sharded = m_parallel && m_parallel->is_sharded();
  const auto trained = this->trained();
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const Parameter& p = trained[i];
    const std::int64_t begin = sharded ? m_parallel->own_ranges()[i].begin : 0;
    Impl::for_each_array(m_optimizer.parameters()[i],
                         [&](const std::string& prefix, const TensorRef& array, std::int64_t per_element) {
                           if (!array.present()) return;
                           const bool is_weight = prefix.empty();
                           if (p.slice.divides() || (sharded && !is_weight))
                             all.push_back(Impl::part_named(prefix + p.name, is_weight ? p.weight : array, p,
                                                            is_weight ? 0 : begin, per_element));
                           else
                             all.push_back({prefix + p.name, is_weight ? p.weight : array});
                         });
  }
  return all;
}

template <class Exec, Scalar T>
std::vector<NamedArray> Trainer<Exec, T>::shard() const {
  const Collectives<Exec>* tensor = m_models.front().tensor_ranks();
  if (!m_parallel || (m_parallel->ranks().size() == 1 && !tensor && !m_pipeline)) return arrays();
  std::vector<NamedArray> parts;
  const auto trained = this->trained();
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const ArrayRange& range = m_parallel->own_ranges()[i];
    const bool sharded = m_parallel->is_sharded();
    // What several ranks have that divide the model, the first of them writes.
    if (trained[i].copy) continue;
    if (tensor && !trained[i].slice.divides() && tensor->communicator().rank() > 0) continue;
    Impl::for_each_array(m_optimizer.parameters()[i], [&](const std::string& prefix, const TensorRef& array,
                                                          std::int64_t per_element) {
      if (!array.present() || range.size() == 0) return;
      const std::int64_t begin = range.begin / per_element, end = (range.end + per_element - 1) / per_element;
      parts.push_back(Impl::part_named(prefix + trained[i].name,
                                       sharded ? array : part_of(array, {i, begin, end}), trained[i],
                                       range.begin, per_element));
    });
  }
  return parts;
}

}  // namespace kformer
