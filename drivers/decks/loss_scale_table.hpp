// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kformer/core/types/names.hpp"
#include "kformer/train/loss_scaling.hpp"

/// \file
/// The keys of loss scaling in [precision], for every kind of deck that has them.

namespace kformer {

/// The type of master weights for 16-bit weights.
enum class MasterWeights { f32, none };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<MasterWeights> = {"f32", "none"};

/// The kind of loss scaling.
enum class LossScalingRule { none, fixed, dynamic };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 3> names_of<LossScalingRule> = {"none", "static", "dynamic"};

/// How the loss is scaled before backward.
struct LossScaleTable {
  LossScalingRule loss_scaling =
      LossScalingRule::none;              ///< kind of loss scaling; none: the other keys have no effect
  double initial_loss_scale = 4096;       ///< the first scale; with `static`, the only one
  double growth_factor = 2;               ///< after `growth_interval` good steps
  double backoff_factor = 0.5;            ///< after a step whose gradients are not finite
  std::int64_t growth_interval = 2000;    ///< consecutive good steps before the scale grows
  double least_loss_scale = 1;            ///< lower bound
  double greatest_loss_scale = 16777216;  ///< upper bound
  bool operator==(const LossScaleTable&) const = default;  ///< all keys equal
};

/// The table as options of the library.
inline std::optional<LossScaling> loss_scaling(const LossScaleTable& t) {
  if (t.loss_scaling == LossScalingRule::none) return {};
  if (t.loss_scaling == LossScalingRule::fixed)
    return LossScaling{.initial = t.initial_loss_scale,
                       .growth_interval = 0,
                       .least = t.initial_loss_scale,
                       .greatest = t.initial_loss_scale};
  return LossScaling{t.initial_loss_scale, t.growth_factor,    t.backoff_factor,
                     t.growth_interval,    t.least_loss_scale, t.greatest_loss_scale};
}

}  // namespace kformer
