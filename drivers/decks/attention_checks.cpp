// SPDX-License-Identifier: MIT
#include "decks/attention_checks.hpp"

#include <fmt/format.h>

#include <array>

#include "decks/attention_schema.hpp"
#include "decks/sweep/sweep_checks.hpp"

namespace kformer::Impl::schema {
namespace {

// Axes that only the tensor file fills.
constexpr std::array axes_of_tensors{
    "num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim", "batch", "q_len", "seq_len"};

void check_extents(const AttentionCompareDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (deck.tensors) {
    for (const char* axis : axes_of_tensors)
      if (has(loaded, {"sweep", axis}))
        diagnostics.error(place_of(loaded, {"sweep", axis}),
                          fmt::format("'sweep.{}' comes from the file of [tensors]; leave it out", axis));
    return;
  }
  for (const char* axis : {"num_attention_heads", "head_dim", "seq_len"})
    if (!has(loaded, {"sweep", axis}))
      diagnostics.error(place_of(loaded, {"sweep", axis}),
                        fmt::format("missing key '{}' in [sweep]; set it, or add [tensors]", axis));
}

// Kernels in float take a smaller one for 0, which means that there is none.
void check_softcap(double softcap, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  constexpr double least = 1 / most_in_float;
  if (softcap > 0 && softcap < least)
    diagnostics.error(place_of(loaded, {"attention", "softcap"}),
                      fmt::format("'attention.softcap' = {} is neither 0 nor at least {}", softcap, least));
}

// Only for a valid sweep.
void check_cases(const AttentionCompareDeck& deck, const AttentionAxes& axes, const LoadedDeck& loaded,
                 Diagnostics& diagnostics) {
  if (deck.tensors) return;
  for (const auto& point : cases_of<AttentionCase>(deck.sweep.mode, axes)) {
    const auto heads = point.num_attention_heads, kv_heads = point.num_key_value_heads;
    if (kv_heads == 0 || heads % kv_heads == 0 || excluded(deck.sweep.exclude, point)) continue;
    diagnostics.error(
        place_of(loaded, {"sweep", "num_key_value_heads"}),
        fmt::format("'sweep.num_key_value_heads' = {} does not divide 'sweep.num_attention_heads' "
                    "= {}; leave such cases out with [[sweep.exclude]]",
                    kv_heads, heads));
    return;
  }
}

}  // namespace

void check_attention_deck(AttentionCompareDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_extents(deck, loaded, diagnostics);
  check_softcap(deck.attention.softcap, loaded, diagnostics);
  check_spaces(deck.sweep.axes.execution_space, loaded, diagnostics);
  AttentionSweepTable sweep = deck.sweep;
  sweep.axes = filled_axes(deck);
  check_number_of_cases(sweep, loaded, diagnostics);
  check_zip(sweep, loaded, diagnostics);
  check_run_tables(deck.run, deck.timing, deck.output, loaded, diagnostics);
  if (!diagnostics.empty()) return;
  check_exclusions<AttentionCase>(sweep.mode, sweep.axes, sweep.exclude, loaded, deck.record.warnings,
                                  diagnostics);
  check_cases(deck, sweep.axes, loaded, diagnostics);
}

}  // namespace kformer::Impl::schema
