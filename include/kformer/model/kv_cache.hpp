// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kformer/core/enum_names.hpp"
#include "kformer/core/types/kv_cache_kind.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/model/impl/index_table.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/ops/attention.hpp"

/// \file
/// Caches of keys and values for incremental decoding: one interface, five ways to keep what was seen.

namespace kformer {

/// What a cache must hold. Members marked with another kind are ignored.
struct KvCacheOptions {
  KvCacheKind kind = KvCacheKind::contiguous;  ///< keys and values to keep
  std::int64_t num_layers = 0;                 ///< layers of the model
  std::int64_t batch = 1;                      ///< sequences
  std::int64_t capacity = 0;         ///< most tokens of a sequence; window, heavy_hitters: 0 for no limit
  std::int64_t max_step_tokens = 1;  ///< most new tokens of a sequence in one step
  std::int64_t page_tokens = 16;     ///< paged: tokens of a page
  std::int64_t pages = 0;            ///< paged: pages of all sequences; 0: enough for batch · capacity tokens
  std::int64_t sinks = 4;            ///< window: tokens kept from the beginning
  std::int64_t window = 0;           ///< window: tokens a query sees besides them, itself included
  std::int64_t budget = 0;           ///< heavy_hitters: tokens kept after a step
  std::int64_t recent = 0;           ///< heavy_hitters: how many of them are the last ones; 0: half
};

namespace Impl {

/// The options, with defaults in place of 0.
/// \throws NotSupported naming the option that is out of range
KvCacheOptions checked_kv_cache_options(const LlamaConfig& config, KvCacheOptions options);

/// Most tokens of a sequence in memory.
std::int64_t kv_cache_slots(const KvCacheOptions& options);

/// Tokens that a window accumulates before it drops them at once.
std::int64_t kv_window_slack(const KvCacheOptions& options);

}  // namespace Impl

/// The keys and values of all layers for a batch of sequences, each with its own length.
///
/// A step appends some tokens to each sequence, and every layer attends once in it:
///
///     cache->begin_step(exec, new_tokens);
///     for (layer …) cache->attend(exec, layer, q, k, v, out);
///     cache->end_step(exec);
///
/// A query sees what the cache keeps, and causally the tokens of its own step. In a model with a sliding window
/// keys that are `window` or more positions behind are hidden, for every kind. Keys are kept as they
/// are given, rotated to their position in the text; `length` is the position of the next token.
///
/// Bookkeeping is on the host; kernels go to the instance that is passed, which must be the same in all calls
/// or fenced between them. On devices `begin_step` fences once, no other call does. All memory is booked in a
/// ledger when the cache is made, keys and values as MemoryClass::kv_cache and scratch as
/// MemoryClass::workspace.
template <class Exec, Scalar T>
class KvCache {
 public:
  /// The cache's memory space.
  using memory_space = typename Exec::memory_space;
  /// Rows of heads, (rows, heads, head_dim) with unit stride along head_dim; slices of wider rows fit.
  using TokenHeads =
      Kokkos::View<T***, Kokkos::LayoutStride, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  /// Rows of heads that are only read.
  using ConstTokenHeads =
      Kokkos::View<const T***, Kokkos::LayoutStride, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  /// A cache without tokens.
  /// \param config  num_attention_heads, num_key_value_heads, head_dim and sliding_window of the model
  /// \param options what it must hold
  /// \param ledger  where its memory is booked
  /// \throws NotSupported naming the option that is out of range
  /// \throws OutOfMemory with the ledger
  static std::unique_ptr<KvCache> create(const LlamaConfig& config, const KvCacheOptions& options,
                                         Ledger& ledger);

  virtual ~KvCache();
  KvCache(const KvCache&) = delete;             ///< its memory is booked once
  KvCache& operator=(const KvCache&) = delete;  ///< its memory is booked once

  /// Tokens that `sequence` has seen: the position of its next token.
  /// \throws NotSupported if there is no such sequence
  std::int64_t length(std::int64_t sequence) const {
    require_sequence("length", sequence);
    return m_lengths[sequence];
  }
  /// Tokens of `sequence` that are in memory.
  virtual std::int64_t stored(std::int64_t sequence) const { return length(sequence); }
  /// Slots of tokens in use now, each once however many sequences share it; pages count as a whole.
  virtual std::int64_t used_slots() const {
    std::int64_t used = 0;
    for (std::int64_t s = 0; s < m_options.batch; ++s) used += stored(s);
    return used;
  }
  /// Whether queries see what they would see in a cache without limits, unrounded.
  virtual bool exact() const { return true; }
  /// The options of the cache, with defaults in place of 0.
  const KvCacheOptions& options() const { return m_options; }

  /// Whether more tokens fit, in one step or several: never less than `begin_step` takes.
  /// \param new_tokens for each sequence how many more tokens
  /// \throws NotSupported if there is not one number for each sequence
  bool has_room(std::span<const std::int64_t> new_tokens) const;

  /// Opens a step and reserves room for it.
  /// \param exec       the instance
  /// \param new_tokens for each sequence how many tokens it gets, 0 if it is done; at most `max_step_tokens`
  /// \throws NotSupported if the tokens do not fit or a step is open; the cache is then unchanged
  /// \throws DimensionMismatch if the cache has no memory, because its ledger only counts
  void begin_step(const Exec& exec, std::span<const std::int64_t> new_tokens);

  /// Appends the new keys and values of a layer, then attends with its new queries. Rows are tokens: the new
  /// tokens of the first sequence, then those of the second, and so on.
  /// `out` overlaps no other operand.
  /// \param exec    the instance
  /// \param layer   which of the model's layers
  /// \param q       (rows, q_heads, head_dim), T, rotated
  /// \param k       (rows, kv_heads, head_dim), T, rotated
  /// \param v       (rows, kv_heads, head_dim), T
  /// \param out     (rows, q_heads, head_dim), T, overwritten
  /// \param options scale, softcap and compute of attention; `window` 0 means the sliding window of the model,
  ///                and attention is always causal
  /// \throws DimensionMismatch if extents do not match
  /// \throws NotSupported if no step is open, there is no such layer, an option is out of range, or heavy_hitters get a
  ///         window that may hide keys in a model without one, for which they have no mask
  void attend(const Exec& exec, std::int64_t layer, const ConstTokenHeads& q, const ConstTokenHeads& k,
              const ConstTokenHeads& v, const TokenHeads& out, const AttentionOptions& options = {});

  /// Closes the step: lengths advance, and keys that the kind does not keep are dropped. Layers that did not
  /// attend have undefined keys and values for the tokens of the step.
  /// \throws NotSupported if no step is open
  void end_step(const Exec& exec);

  /// Closes the step as if it had not been opened, for instance because an error ended it: lengths and rooms are those from
  /// before. Only the attention of its queries stays counted (heavy_hitters).
  /// \throws NotSupported if no step is open
  void cancel_step();

  /// `to` becomes a copy of `from`, so that a common beginning is computed once. Paged sequences share their
  /// pages until one writes to them.
  /// \throws NotSupported if a step is open or there is no such sequence
  void fork(const Exec& exec, std::int64_t from, std::int64_t to);

  /// Whether `truncate` takes this length.
  /// \throws NotSupported if there is no such sequence
  bool can_truncate(std::int64_t sequence, std::int64_t length) const {
    require_sequence("can_truncate", sequence);
    return length >= 0 && length <= m_lengths[sequence] && refuse_truncation(sequence, length).empty();
  }

  /// Forgets the tokens of `sequence` from position `length` on.
  /// \throws NotSupported if a step is open, there are fewer tokens, or keys that would be visible then are no
  ///         longer kept
  void truncate(std::int64_t sequence, std::int64_t length);

  /// Forgets all tokens of `sequence`.
  /// \throws NotSupported if a step is open or there is no such sequence
  void reset(std::int64_t sequence) { truncate(sequence, 0); }

 protected:
  /// A (batch, rows, heads, head_dim) array in memory that is held elsewhere.
  using Batch =
      Kokkos::View<T****, Kokkos::LayoutStride, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  /// The same, only read.
  using ConstBatch =
      Kokkos::View<const T****, Kokkos::LayoutStride, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  /// Books the scratch that all kinds need; `options` have been checked.
  KvCache(const LlamaConfig& config, const KvCacheOptions& options, Ledger& ledger);

  /// The reason why the tokens of a step do not fit, and what to do; empty if they fit.
  virtual std::string refuse_step(std::span<const std::int64_t>) const { return {}; }
  /// Why a sequence cannot be cut to a length, and what to do; empty if it can.
  virtual std::string refuse_truncation(std::int64_t, std::int64_t) const { return {}; }
  /// Why queries cannot have a window, and what to do; empty if they can.
  virtual std::string refuse_window(std::int64_t) const { return {}; }
  /// Makes room for the step that is being opened.
  virtual void reserve(const Exec&) {}
  /// The slot, among those of all sequences, where new token number `i` of a sequence goes.
  virtual std::int64_t slot_of(std::int64_t sequence, std::int64_t i) const = 0;
  /// Keeps the keys and values of the rows of a step.
  virtual void append(const Exec& exec, std::int64_t layer, const ConstTokenHeads& k,
                      const ConstTokenHeads& v) = 0;
  /// Attends with the new queries of one sequence, (1, rows, q_heads, head_dim).
  virtual void attend_sequence(const Exec& exec, std::int64_t layer, std::int64_t sequence, const ConstBatch& q,
                               const Batch& out, const AttentionOptions& options) = 0;
  /// Drops keys that are not kept. Lengths have not advanced yet.
  virtual void finish_step(const Exec&) {}
  /// Copies keys and values to keep of a sequence over that of another. Lengths are not the same yet.
  virtual void copy_sequence(const Exec& exec, std::int64_t from, std::int64_t to) = 0;
  /// Drops the tokens of a sequence from a length on.
  virtual void shorten(std::int64_t, std::int64_t) {}

  /// Tokens of a sequence while a step is open, those of the step included.
  std::int64_t length_in_step(std::int64_t sequence) const {
    return m_lengths[sequence] + m_new_tokens[sequence];
  }
  /// Attention with the cache's scratch; `m_lse` has the statistics afterwards, (q_heads, rows) and dense.
  void run_attention(const Exec& exec, const ConstBatch& q, const ConstBatch& k, const ConstBatch& v,
                     const Batch& out, const AttentionOptions& options,
                     const AttentionExtras<Exec>& extras = {}) const;
  /// \throws NotSupported with the function, the sentence and the kind
  void require(bool condition, const char* function, const std::string& sentence) const;

  const LlamaConfig m_config;              ///< the model
  const KvCacheOptions m_options;          ///< with defaults in place of 0
  const std::int64_t m_slots;              ///< most tokens of a sequence in memory
  std::vector<std::int64_t> m_lengths;     ///< tokens seen, by sequence
  std::vector<std::int64_t> m_new_tokens;  ///< of the open step, by sequence
  Impl::IndexTable<Exec> m_row_slots;      ///< of the open step: where each row goes
  compute_t<T>* m_lse = nullptr;           ///< scratch

 private:
  void require_closed(const char* function) const;
  void require_sequence(const char* function, std::int64_t sequence) const;
  void require_counts(const char* function, std::span<const std::int64_t> new_tokens) const;

  MemoryBlock<memory_space> m_scratch;
  Kokkos::View<std::byte*, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> m_workspace;
  std::int64_t m_rows = 0;
  bool m_open = false;
};

}  // namespace kformer
