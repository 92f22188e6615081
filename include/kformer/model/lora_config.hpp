// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "kformer/core/enum_names.hpp"
#include "kformer/model/projection.hpp"

/// \file
/// Which linear maps of a model have low-rank adapters. Free of Kokkos.

namespace kformer {

/// The adapter of one projection, in every layer.
struct LoraTarget {
  std::int64_t rank = 0;  ///< 0: none
  double alpha = 0;       ///< α
  /// Whether both are equal.
  bool operator==(const LoraTarget&) const = default;
};

/// The adapters of a model (LoRA: Hu et al., arXiv:2106.09685). Where there is one, it alone learns.
struct LoraConfig {
  std::array<LoraTarget, names_of<Projection>.size()> targets{};  ///< by projection
  bool rank_stabilized = false;    ///< rsLoRA (Kalajdzievski, arXiv:2312.03732): α/√rank in place of α/rank
  double learning_rate_ratio = 1;  ///< of B over A, LoRA+ (Hayou et al., arXiv:2402.12354)
  bool magnitudes = false;  ///< DoRA (Liu et al., arXiv:2402.09353): rows have magnitudes that learn, too
  /// Probability, in [0, 1), that an adapter loses an element of x while there is a `DropoutDraw`.
  double dropout = 0;

  /// The adapter of a projection.
  const LoraTarget& operator[](Projection p) const { return targets[static_cast<std::size_t>(p)]; }
  /// The same, to write.
  LoraTarget& operator[](Projection p) { return targets[static_cast<std::size_t>(p)]; }

  /// Whether any projection has one.
  bool any() const {
    return std::any_of(targets.begin(), targets.end(), [](const LoraTarget& t) { return t.rank > 0; });
  }
  /// The factor s of a projection's adapter.
  double scale(Projection p) const {
    const auto rank = static_cast<double>(std::max<std::int64_t>(1, (*this)[p].rank));
    return (*this)[p].alpha / (rank_stabilized ? std::sqrt(rank) : rank);
  }
  /// The same adapter for all projections.
  static LoraConfig all(std::int64_t rank, double alpha) {
    LoraConfig config;
    config.targets.fill({rank, alpha});
    return config;
  }
  /// Whether all is equal.
  bool operator==(const LoraConfig&) const = default;
};

/// Whether a model computes with its adapters. Without them it is the model that training began with, the reference of
/// preferences and policies, of which nothing has to be stored twice.
enum class AdapterUse { on, off };

/// The random numbers of dropout in a forward and its backward. An element of x is lost if a word of Philox-4x32-10
/// (Salmon et al., SC'11) is below p · 2³²: word `column mod 4` of the block whose key is `seed` and whose counter is
/// (⌊column / 4⌋, first_row + row, step, 8 · layer + projection), each modulo 2³², with columns of the whole x and rows of
/// whole sequences where ranks divide them. So every adapter has a mask of its own, no mask is stored, and none depends on
/// threads, on ranks or on how a step is cut into micro-batches.
struct DropoutDraw {
  std::uint64_t seed = 0;      ///< of the training
  std::int64_t step = 0;       ///< of the training
  std::int64_t first_row = 0;  ///< number of the first token among those of the step
};

/// The numbers in all adapters of a model.
inline std::int64_t adapter_parameter_count(const LlamaConfig& model, const LoraConfig& lora) {
  std::int64_t of_layer = 0;
  for (std::size_t i = 0; i < lora.targets.size(); ++i) {
    const auto [out, in] = projection_extents(model, static_cast<Projection>(i));
    of_layer += lora.targets[i].rank * (out + in);
    if (lora.magnitudes && lora.targets[i].rank > 0) of_layer += out;
  }
  return model.num_hidden_layers * of_layer;
}

/// Of these, the numbers that ranks which divide the model (`LayerOptions::tensor`) all have: A where they divide the rows
/// of a weight, B and magnitudes where they divide its columns, as those of o and down.
inline std::int64_t whole_adapter_parameter_count(const LlamaConfig& model, const LoraConfig& lora) {
  std::int64_t of_layer = 0;
  for (std::size_t i = 0; i < lora.targets.size(); ++i) {
    const auto p = static_cast<Projection>(i);
    const auto [out, in] = projection_extents(model, p);
    const bool by_columns = p == Projection::o || p == Projection::down;
    of_layer += lora[p].rank * (by_columns ? out : in);
    if (by_columns && lora.magnitudes && lora[p].rank > 0) of_layer += out;
  }
  return model.num_hidden_layers * of_layer;
}

}  // namespace kformer
