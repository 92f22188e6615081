// SPDX-License-Identifier: MIT
#include "decks/scaling/scaling_deck.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "decks/engine/deck_of_kind.hpp"
#include "decks/language_model.hpp"
#include "decks/scaling/scaling_schema.hpp"
#include "decks/sweep/sweep_checks.hpp"
#include "decks/train/parallel_checks.hpp"

namespace kformer {

using namespace Impl::schema;

std::optional<PlanParallelTable> parse_grid(const std::string& text) {
  constexpr std::int64_t most_ranks = 1 << 16;
  PlanParallelTable grid;
  std::int64_t ranks = 1;
  const char *at = text.data(), *const end = at + text.size();
  for (std::int64_t* extent : {&grid.data, &grid.context, &grid.tensor, &grid.pipeline}) {
    if (extent == &grid.pipeline && at == end) break;
    if (extent != &grid.data) {
      if (at == end || *at != 'x') return {};
      ++at;
    }
    const auto [next, error] = std::from_chars(at, end, *extent);
    // A product of four extents would overflow.
    if (error != std::errc() || *extent < 1 || *extent > most_ranks / ranks) return {};
    ranks *= *extent;
    at = next;
  }
  if (at != end) return {};
  return grid;
}

std::string grid_name(const PlanParallelTable& grid) {
  return fmt::format("{}x{}x{}{}", grid.data, grid.context, grid.tensor,
                     grid.pipeline > 1 ? fmt::format("x{}", grid.pipeline) : "");
}

std::int64_t sequences_of(const ScalingDeck& deck, const PlanParallelTable& grid) {
  return deck.sweep.scaling == ScalingKind::weak ? deck.batch.sequences * grid.data : deck.batch.sequences;
}

PlanParallelTable grid_of_deck(const ScalingDeck& deck, const std::string& text) {
  const ScalingSweepTable& sweep = deck.sweep;
  PlanParallelTable grid = *parse_grid(text);
  grid.zero = sweep.zero;
  grid.sequence = sweep.sequence && grid.tensor > 1;
  if (grid.context > 1) grid.context_exchange = sweep.context_exchange;
  if (grid.pipeline == 1) return grid;
  grid.schedule = sweep.schedule;
  grid.parts = sweep.parts;
  return grid;
}

std::string undivided(const ScalingDeck& deck, const PlanParallelTable& grid) {
  if (grid.context_exchange == ContextExchange::ring && deck.model->sliding_window > 0)
    return "a window lies across the parts of a ring; set 'sweep.context_exchange' = \"all_gather\"";
  if (std::string extent = undivided_extent(grid, *deck.model); !extent.empty()) return extent;
  const BatchTable& b = deck.batch;
  if (const std::int64_t tokens = b.micro_batch * b.seq_len / grid.context;
      grid.sequence && tokens % grid.tensor != 0)
    return fmt::format("{} ranks along tensor do not divide the {} tokens of a rank, as 'sweep.sequence' wants",
                       grid.tensor, tokens);
  if (grid.pipeline > 1 && deck.sweep.what == ScalingWork::layer)
    return "stages of a pipeline do not divide a layer; set 'sweep.what' = \"step\"";
  if (grid.context > 1 && b.seq_len % (2 * grid.context) != 0)
    return fmt::format("{} ranks along context need a 'batch.seq_len' that is a multiple of {}, not {}",
                       grid.context, 2 * grid.context, b.seq_len);
  if (const std::int64_t sequences = sequences_of(deck, grid); sequences % (grid.data * b.micro_batch) != 0)
    return fmt::format(
        "{} sequences of a step are not as many micro-batches of {} for each of {} ranks along data", sequences,
        b.micro_batch, grid.data);
  return {};
}

namespace {

void check_grids(const char* table, const std::vector<std::string>& grids, const LoadedDeck& loaded,
                 Diagnostics& diagnostics) {
  for (auto grid = grids.begin(); grid != grids.end(); ++grid) {
    const auto fault = [&](const std::string& text) {
      diagnostics.error(place_of(loaded, {table, "grids"}), fmt::format("'{}.grids' {}", table, text));
    };
    if (!parse_grid(*grid))
      fault(
          fmt::format("has '{}', which is no grid; write data x context x tensor, with x pipeline where layers "
                      "are divided, such as \"4x1x2\" or \"1x1x2x4\"",
                      *grid));
    else if (std::find(grids.begin(), grid, *grid) != grid)
      fault(fmt::format("has '{}' twice", *grid));
  }
  if (grids.empty() && has(loaded, {table, "grids"}))
    diagnostics.error(place_of(loaded, {table, "grids"}), fmt::format("'{}.grids' is empty", table));
}

void check_schedule(const ScalingSweepTable& sweep, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  std::string fault = parts_fault("sweep", sweep.schedule, sweep.parts);
  if (!fault.empty())
    diagnostics.error(place_of(loaded, {"sweep", sweep.parts > 1 ? "parts" : "schedule"}), std::move(fault));
}

void check_simulation(const ScalingDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (deck.simulate.has_value() != deck.machine.has_value())
    diagnostics.error(place_of(loaded, {deck.simulate ? "simulate" : "machine"}),
                      deck.simulate ? "[simulate] needs [machine], which says what its grids run on"
                                    : "[machine] is read for [simulate] alone; add that, or remove this");
  if (!deck.simulate) return;
  if (deck.sweep.what == ScalingWork::layer)
    diagnostics.error(place_of(loaded, {"simulate"}), "[simulate] is of steps; set 'sweep.what' = \"step\"");
  check_grids("simulate", deck.simulate->grids, loaded, diagnostics);
}

void check_scaling_deck(ScalingDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_run_tables(deck.run, deck.timing, deck.output, loaded, diagnostics);
  if (!deck.model)
    diagnostics.error(place_of(loaded, {"model"}), "the deck needs [model]");
  else
    check_language_model(*deck.model, loaded, diagnostics);
  check_grids("sweep", deck.sweep.grids, loaded, diagnostics);
  check_schedule(deck.sweep, loaded, diagnostics);
  check_simulation(deck, loaded, diagnostics);
  if (deck.batch.sequences % deck.batch.micro_batch != 0)
    diagnostics.error(place_of(loaded, {"batch", "sequences"}),
                      fmt::format("'batch.sequences' = {} is no multiple of 'batch.micro_batch' = {}",
                                  deck.batch.sequences, deck.batch.micro_batch));
}

}  // namespace

ScalingDeck load_scaling_deck(const DeckSource& source) {
  const LoadedDeck loaded = load_deck(source, scaling_kind);
  Diagnostics diagnostics;
  ScalingDeck below;
  below.model = configured_language_model(loaded, diagnostics);
  diagnostics.throw_if_any();
  auto deck = read_deck(loaded, source, diagnostics, std::move(below));
  if (!has(loaded, {"batch", "sequences"})) deck.batch.sequences = deck.batch.micro_batch;
  if (deck.model && !has(loaded, {"model", "max_position_embeddings"}) &&
      deck.model->max_position_embeddings == 0)
    deck.model->max_position_embeddings = deck.batch.seq_len;
  check_scaling_deck(deck, loaded, diagnostics);
  diagnostics.throw_if_any();
  record_deck(deck, loaded);
  return deck;
}

template <>
std::string describe_deck_markdown<ScalingDeck>() {
  return deck_markdown<ScalingDeck>();
}

template <>
std::string describe_deck_json_schema<ScalingDeck>() {
  return deck_json_schema<ScalingDeck>(scaling_kind,
                                       "A step of training, or a layer, on several grids of ranks.");
}

}  // namespace kformer
