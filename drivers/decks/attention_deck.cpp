// SPDX-License-Identifier: MIT
#include "decks/attention_deck.hpp"

#include "decks/attention_checks.hpp"
#include "decks/attention_schema.hpp"
#include "decks/engine/deck_of_kind.hpp"
#include "decks/sweep/sweep_cases.hpp"

namespace kformer {

using namespace Impl::schema;

AttentionCompareDeck load_attention_deck(const DeckSource& source) {
  const LoadedDeck loaded = load_deck(source, attention_compare_kind);
  Diagnostics diagnostics;
  auto deck = read_deck<AttentionCompareDeck>(loaded, source, diagnostics);
  check_attention_deck(deck, loaded, diagnostics);
  diagnostics.throw_if_any();
  record_deck(deck, loaded);
  return deck;
}

AttentionAxes filled_axes(const AttentionCompareDeck& deck) {
  AttentionAxes axes = deck.sweep.axes;
  if (axes.causal.empty()) axes.causal = {deck.attention.causal};
  if (axes.window.empty()) axes.window = {deck.attention.window};
  if (deck.tensors) {
    if (axes.impl.empty()) axes.impl = {AttentionAlgorithm::flash};
    return axes;
  }
  if (axes.impl.empty()) axes.impl = {AttentionAlgorithm::standard, AttentionAlgorithm::flash};
  if (axes.dtype.empty()) axes.dtype = {DType::f32};
  if (axes.direction.empty()) axes.direction = {Direction::forward, Direction::backward};
  if (axes.batch.empty()) axes.batch = {1};
  return axes;
}

std::vector<AttentionCase> expand(const AttentionCompareDeck& deck, const AttentionAxes& axes,
                                  const std::vector<std::string>& built_spaces) {
  auto cases = expand_sweep<AttentionCase>(deck.sweep.mode, axes, deck.sweep.exclude, built_spaces);
  for (AttentionCase& point : cases) {
    if (point.num_key_value_heads == 0) point.num_key_value_heads = point.num_attention_heads;
    if (point.v_head_dim == 0) point.v_head_dim = point.head_dim;
  }
  return cases;
}

template <>
std::string describe_deck_markdown<AttentionCompareDeck>() {
  return deck_markdown<AttentionCompareDeck>();
}

template <>
std::string describe_deck_json_schema<AttentionCompareDeck>() {
  return deck_json_schema<AttentionCompareDeck>(
      attention_compare_kind, "Attention alone, flash against standard, over a grid of shapes and options.");
}

}  // namespace kformer
