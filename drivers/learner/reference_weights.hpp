// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <memory>
#include <vector>

#include "kformer/memory/arena.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/model/parameter.hpp"

/// \file
/// The weights that a training began with.

namespace kformer::drivers {

/// Exchanges the elements of two arrays.
template <class Exec, class T>
void exchange(const Exec& exec, T* a, T* b, std::int64_t count) {
  Kokkos::parallel_for(
      "kformer-train::exchange", Kokkos::RangePolicy<Exec>(exec, 0, count), KOKKOS_LAMBDA(std::int64_t i) {
        const T own = a[i];
        a[i] = b[i];
        b[i] = own;
      });
}

/// A copy of the weights of a model. To compute with it, both change places: that needs no other memory, and has the
/// bits of the model when it had these weights.
template <class Exec, class T>
class ReferenceWeights {
 public:
  /// \param parameters whose arrays must stay
  ReferenceWeights(const std::vector<Parameter>& parameters, Ledger& ledger) : m_copies(parameters.size()) {
    Arena<memory_space> arena;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const TensorRef& weight = parameters[i].weight;
      m_weights.emplace_back(static_cast<T*>(weight.data), static_cast<std::size_t>(weight.size()));
      arena.add(m_copies[i], weight.size());
    }
    m_block = arena.allocate(ledger, MemoryClass::weights, "Learner::reference");
  }

  /// Copies the weights as they are now.
  void keep(const Exec& exec) {
    for (std::size_t i = 0; i < m_weights.size(); ++i) Kokkos::deep_copy(exec, m_copies[i], m_weights[i]);
  }

  /// The model has the copied weights as long as what this returns exists.
  [[nodiscard]] std::shared_ptr<void> in_place(const Exec& exec) {
    trade(exec);
    return {nullptr, [this, exec](void*) { trade(exec); }};
  }

 private:
  using memory_space = typename Exec::memory_space;

  void trade(const Exec& exec) {
    for (std::size_t i = 0; i < m_weights.size(); ++i)
      exchange(exec, m_weights[i].data(), m_copies[i].data(), static_cast<std::int64_t>(m_copies[i].size()));
  }

  std::vector<BlockVector<memory_space, T>> m_weights, m_copies;
  MemoryBlock<memory_space> m_block;
};

}  // namespace kformer::drivers
