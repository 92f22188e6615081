// SPDX-License-Identifier: MIT
#include "io/deck/layer_checks.hpp"

#include <fmt/format.h>

#include "io/deck/layer_model.hpp"
#include "io/deck/layer_schema.hpp"
#include "io/deck/sweep_checks.hpp"

namespace kformer::Impl::decks {
namespace {

void check_model(LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (!deck.tensors)
    for (const char* key : {"hidden_size", "num_attention_heads", "intermediate_size"})
      if (!has(loaded, {"model", key}))
        diagnostics.error(place_of(loaded, {"model", key}),
                          fmt::format("missing key '{}' in [model]; give it, or 'config', or [tensors]", key));
  const auto faults = deck.tensors ? model_faults(deck.model) : complete_model(deck.model);
  for (const auto& fault : faults)
    diagnostics.error(place_of(loaded, {"model", fault.key}),
                      fmt::format("'model.{}' {}", fault.key, fault.message));
}

void check_axes(const LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (!deck.tensors && !has(loaded, {"sweep", "seq_len"}))
    diagnostics.error(place_of(loaded, {"sweep", "seq_len"}),
                      "missing key 'seq_len' in [sweep]; give it, or [tensors]");
  check_spaces(deck.sweep.axes.execution_space, loaded, diagnostics);
}

}  // namespace

void check_layer_deck(LayerSweepDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_model(deck, loaded, diagnostics);
  check_axes(deck, loaded, diagnostics);
  check_number_of_cases(deck.sweep, loaded, diagnostics);
  check_zip(deck.sweep, loaded, diagnostics);
  check_run_tables(deck.run, deck.timing, deck.output, loaded, diagnostics);
  if (diagnostics.empty())
    check_exclusions<LayerCase>(deck.sweep.mode, deck.sweep.axes, deck.sweep.exclude, loaded,
                                deck.record.warnings, diagnostics);
}

}  // namespace kformer::Impl::decks
