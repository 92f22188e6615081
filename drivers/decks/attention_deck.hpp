// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "decks/sweep/sweep.hpp"
#include "kformer/core/dtype.hpp"

/// \file
/// Decks of kind "attention_compare": attention alone, flash against standard, over a grid of shapes and
/// options.

namespace kformer {

/// The axes of a comparison: `Slot<T>` is a list of values in a sweep or an exclusion, one value in a case.
template <template <class> class Slot>
struct AttentionPoint {
  Slot<std::string>
      execution_space{};  ///< lower-case name of a Kokkos execution space; "all" and "default" in decks only
  Slot<DType> dtype{};    ///< storage type: f32, bf16, f16, f64
  Slot<Direction> direction{};               ///< which pass to measure
  Slot<bool> causal{};                       ///< later keys are hidden
  Slot<std::int64_t> window{};               ///< keys at this distance or more are hidden, 0 = none
  Slot<std::int64_t> num_attention_heads{};  ///< query heads
  Slot<std::int64_t> num_key_value_heads{};  ///< divides the query heads; 0 in decks: as many
  Slot<std::int64_t> head_dim{};             ///< features per query and key
  Slot<std::int64_t> v_head_dim{};           ///< features of a value; 0 in decks: head_dim
  Slot<std::int64_t> batch{};                ///< sequences
  Slot<std::int64_t> q_len{};                ///< queries of a sequence, 0 = seq_len
  Slot<std::int64_t> seq_len{};              ///< keys per sequence
  Slot<AttentionAlgorithm> impl{};           ///< implementation of attention
  bool operator==(const AttentionPoint&) const = default;  ///< all axes equal
};

/// Values along every axis; in an exclusion an empty axis matches every value.
using AttentionAxes = AttentionPoint<AxisValues>;
/// One point of a comparison. `q_len` stays 0 where the deck says 0.
using AttentionCase = AttentionPoint<AxisValue>;

/// Queries of a sequence.
inline std::int64_t query_length(const AttentionCase& point) {
  return point.q_len == 0 ? point.seq_len : point.q_len;
}

/// The table [sweep].
struct AttentionSweepTable {
  SweepMode mode = SweepMode::product;  ///< every combination, or the n-th values together
  /// The axes. Empty ones get what `[attention]`, the tensor file or the defaults say; see `filled_axes`.
  AttentionAxes axes{{"all"}, {}, {}, {}, {}, {}, {0}, {}, {0}, {}, {0}, {}, {}};
  std::vector<AttentionAxes> exclude;                           ///< points to leave out
  bool operator==(const AttentionSweepTable&) const = default;  ///< all keys equal
};

/// The table [attention]: options of all cases.
struct AttentionTable {
  bool causal = false;      ///< later keys are hidden; `sweep.causal` wins
  std::int64_t window = 0;  ///< keys at this distance or more are hidden, 0 = none; `sweep.window` wins
  double softcap = 0;       ///< c > 0 replaces a scaled score s by c·tanh(s/c)
  Precision compute = Precision::storage;  ///< whether flash attention may round weights to the storage type
  double scale = 0;                        ///< factor on the scores, 0 = 1/√head_dim
  bool operator==(const AttentionTable&) const = default;  ///< all keys equal
};

/// The table [limits].
struct LimitsTable {
  std::int64_t device_bytes = 0;  ///< cases forecast to need more are skipped, 0 = no such limit
  bool operator==(const LimitsTable&) const = default;  ///< all keys equal
};

/// The table [tensors] of a comparison.
struct AttentionTensorsTable : TensorsTable {
  bool operator==(const AttentionTensorsTable&) const = default;  ///< all keys equal
};

/// A deck of kind "attention_compare".
struct AttentionCompareDeck {
  RunTable run;                                  ///< [run]
  TimingTable timing;                            ///< [timing]
  ProfileTable profile;                          ///< [profile]
  OutputTable output;                            ///< [output]
  AttentionTable attention;                      ///< [attention]
  AttentionSweepTable sweep;                     ///< [sweep]
  CheckTable check;                              ///< [check]
  LimitsTable limits;                            ///< [limits]
  std::optional<AttentionTensorsTable> tensors;  ///< [tensors], if the deck has it
  DeckRecord record;                             ///< how the deck was read
};

/// Reads a deck of kind "attention_compare". Needs neither Kokkos nor a device.
/// \throws FileError if the file cannot be read
/// \throws DeckError if the deck is invalid; the text lists every fault with its place
AttentionCompareDeck load_attention_deck(const DeckSource& source);

/// The axes of the deck's sweep, with `[attention]` and the defaults where they are empty. Of a deck with
/// [tensors] the axes that the tensor file fills stay empty: dtype, direction and all extents.
AttentionAxes filled_axes(const AttentionCompareDeck& deck);

/// The cases of a comparison in running order: the first axis of `AttentionPoint` varies slowest, so that
/// implementations are adjacent.
/// \param deck  the deck; excluded points are left out
/// \param axes  those of `filled_axes`, completed from the tensor file where the deck has one
/// \param built_spaces lower-case names of the execution spaces of this build, the default one first: what
///                     "all" and "default" stand for
/// \throws DeckError for an execution space that is not built, or when no case is left
std::vector<AttentionCase> expand(const AttentionCompareDeck& deck, const AttentionAxes& axes,
                                  const std::vector<std::string>& built_spaces);

/// The reference of a comparison.
template <>
std::string describe_deck_markdown<AttentionCompareDeck>();

/// The JSON Schema of a comparison.
template <>
std::string describe_deck_json_schema<AttentionCompareDeck>();

}  // namespace kformer
