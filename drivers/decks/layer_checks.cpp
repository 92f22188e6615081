// SPDX-License-Identifier: MIT
#include "decks/layer_checks.hpp"

#include <fmt/format.h>

#include <utility>

#include "decks/layer_schema.hpp"
#include "decks/sweep/sweep_checks.hpp"
#include "io/config/complete_model.hpp"

namespace kformer::Impl::schema {
namespace {

void check_model(LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (!deck.tensors)
    for (const char* key : {"hidden_size", "num_attention_heads", "intermediate_size"})
      if (!has(loaded, {"model", key}))
        diagnostics.error(place_of(loaded, {"model", key}),
                          fmt::format("missing key '{}' in [model]; set it, set 'config', or add "
                                      "[tensors]",
                                      key));
  const auto faults = deck.tensors ? model_faults(deck.model) : complete_model(deck.model);
  for (const auto& fault : faults)
    diagnostics.error(place_of(loaded, {"model", fault.key}),
                      fmt::format("'model.{}' {}", fault.key, fault.message));
}

void check_axes(const LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (!deck.tensors && !has(loaded, {"sweep", "seq_len"}))
    diagnostics.error(place_of(loaded, {"sweep", "seq_len"}),
                      "missing key 'seq_len' in [sweep]; set it, or add [tensors]");
  check_spaces(deck.sweep.axes.execution_space, loaded, diagnostics);
}

void check_training(LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_loss_scale(deck.precision, "loss_scaling", loaded, deck.record.warnings, diagnostics);
  check_below_one("optimizer", "beta1", deck.optimizer.beta1, loaded, diagnostics);
  check_below_one("optimizer", "beta2", deck.optimizer.beta2, loaded, diagnostics);
}

// By their values: a resolved deck has the defaults of all keys.
void warn_of_idle_keys(const LossScaleTable& t, const char* rule_key, const LoadedDeck& loaded,
                       std::vector<std::string>& warnings) {
  const LossScaleTable defaults;
  const bool none = t.loss_scaling == LossScalingRule::none;
  const bool adapts = t.loss_scaling == LossScalingRule::dynamic;
  for (const auto& [key, idle] :
       {std::pair{"initial_loss_scale", none && t.initial_loss_scale != defaults.initial_loss_scale},
        {"growth_factor", !adapts && t.growth_factor != defaults.growth_factor},
        {"backoff_factor", !adapts && t.backoff_factor != defaults.backoff_factor},
        {"growth_interval", !adapts && t.growth_interval != defaults.growth_interval},
        {"least_loss_scale", !adapts && t.least_loss_scale != defaults.least_loss_scale},
        {"greatest_loss_scale", !adapts && t.greatest_loss_scale != defaults.greatest_loss_scale}})
    if (idle)
      warnings.push_back(fmt::format("{}: warning: 'precision.{}' has no effect with 'precision.{}' = \"{}\"",
                                     to_string(place_of(loaded, {"precision", key})), key, rule_key,
                                     name_of(t.loss_scaling)));
}

}  // namespace

void check_below_one(const char* table, const char* key, double value, const LoadedDeck& loaded,
                     Diagnostics& diagnostics) {
  if (value >= 1)
    diagnostics.error(place_of(loaded, {table, key}),
                      fmt::format("'{}.{}' must be less than 1, got {}", table, key, value));
}

void check_loss_scale(const LossScaleTable& t, const char* rule_key, const LoadedDeck& loaded,
                      std::vector<std::string>& warnings, Diagnostics& diagnostics) {
  warn_of_idle_keys(t, rule_key, loaded, warnings);
  check_below_one("precision", "backoff_factor", t.backoff_factor, loaded, diagnostics);
  if (t.least_loss_scale > t.greatest_loss_scale)
    diagnostics.error(place_of(loaded, {"precision", "least_loss_scale"}),
                      fmt::format("'precision.least_loss_scale' = {} is more than greatest_loss_scale = {}",
                                  t.least_loss_scale, t.greatest_loss_scale));
  const bool inside =
      t.least_loss_scale <= t.initial_loss_scale && t.initial_loss_scale <= t.greatest_loss_scale;
  if (t.loss_scaling == LossScalingRule::dynamic && !inside)
    diagnostics.error(place_of(loaded, {"precision", "initial_loss_scale"}),
                      fmt::format("'precision.initial_loss_scale' must lie between least_loss_scale = {} and "
                                  "greatest_loss_scale = {}, got {}",
                                  t.least_loss_scale, t.greatest_loss_scale, t.initial_loss_scale));
}

void check_layer_deck(LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_model(deck, loaded, diagnostics);
  check_axes(deck, loaded, diagnostics);
  check_training(deck, loaded, diagnostics);
  check_number_of_cases(deck.sweep, loaded, diagnostics);
  check_zip(deck.sweep, loaded, diagnostics);
  check_run_tables(deck.run, deck.timing, deck.output, loaded, diagnostics);
  if (diagnostics.empty())
    check_exclusions<LayerCase>(deck.sweep.mode, deck.sweep.axes, deck.sweep.exclude, loaded,
                                deck.record.warnings, diagnostics);
}

}  // namespace kformer::Impl::schema
