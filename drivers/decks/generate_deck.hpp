// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "decks/engine/deck.hpp"
#include "decks/engine/rank_backend.hpp"
#include "kformer/core/dtype.hpp"
#include "kformer/core/types/activations.hpp"
#include "kformer/core/types/checkpoint_format.hpp"
#include "kformer/core/types/kv_cache_kind.hpp"
#include "kformer/core/types/names.hpp"
#include "kformer/core/types/tokenizer_format.hpp"

/// \file
/// Decks of kind "generate": a checkpoint continues prompts.

namespace kformer {

/// The table [weights].
struct WeightsTable {
  CheckpointFormat format = CheckpointFormat::automatic;  ///< automatic: what the path holds
  std::filesystem::path path;                             ///< file or folder, absolute
  bool keep_quantized = true;                             ///< false: quantised weights are expanded when loaded
  bool operator==(const WeightsTable&) const = default;   ///< all keys equal
};

/// The table [tokenizer].
struct TokenizerTable {
  TokenizerFormat format = TokenizerFormat::automatic;     ///< automatic: what the path holds
  std::filesystem::path path;                              ///< absolute; empty: the one beside the weights
  std::optional<bool> add_bos;                             ///< empty: as the tokenizer says
  bool operator==(const TokenizerTable&) const = default;  ///< all keys equal
};

/// The table [sampling]. Temperature 0 takes the most likely token.
struct SamplingTable {
  double temperature = 0;         ///< logits are divided by this; 0 = greedy
  std::int64_t top_k = 0;         ///< keep this many of the most likely tokens, 0 = all
  double top_p = 1;               ///< keep the most likely tokens that together have this probability
  double min_p = 0;               ///< keep tokens of at least this share of the greatest probability
  double repetition_penalty = 1;  ///< logits of repeated tokens: positive ones / this, negative ones · this
  std::int64_t repetition_window = 0;                     ///< the last tokens that count as repeated, 0 = all
  std::int64_t seed = 1;                                  ///< `run.seed` if not given
  bool operator==(const SamplingTable&) const = default;  ///< all keys equal
};

/// The sizes of KV caches. Each kind reads only its own.
struct KvCacheTable {
  std::int64_t page_tokens = 16;                         ///< of `paged`
  std::int64_t window = 0;                               ///< of `window`: the last tokens that are kept
  std::int64_t sinks = 4;                                ///< of `window`: first tokens kept besides
  std::int64_t budget = 0;                               ///< of `heavy_hitters`: tokens kept in all
  std::int64_t recent = 0;                               ///< of `heavy_hitters`: the last of these tokens
  bool operator==(const KvCacheTable&) const = default;  ///< all keys equal
};

/// The table [generate].
struct GenerateTable {
  std::string execution_space = "default";      ///< lower-case name of a Kokkos execution space, or "default"
  DType dtype = DType::f32;                     ///< activations and dense weights: f32, bf16, f16, f64
  Activations activations = Activations::full;  ///< activations in products with quantised weights
  bool batch_invariant = false;                 ///< the bits of a sequence do not depend on the others
  std::int64_t max_new_tokens = 256;            ///< of a sequence
  std::int64_t batch = 1;                       ///< sequences that start with each prompt
  KvCacheKind kv_cache = KvCacheKind::contiguous;  ///< what is kept between tokens
  KvCacheTable cache;                              ///< sizes of the cache; its keys are in [generate]
  std::int64_t prefill_chunk = 512;                ///< prompt tokens per step, 0 = the whole prompt
  std::int64_t max_seq_len = 0;                    ///< tokens per sequence, 0 = what prompt and new tokens need
  bool share_prefix = true;                        ///< one prefill for the rows of a batch
  bool stop_at_eos = true;                         ///< end a sequence after an end-of-text token
  std::vector<std::string> stop;                   ///< end a sequence whose new text contains one of these
  bool log_probabilities = true;                   ///< keep the log-probability of each new token
  bool score_prompt = true;                        ///< and of the prompt's tokens
  bool last_logits = false;                        ///< keep the logits after the last token of each sequence
  bool operator==(const GenerateTable&) const = default;  ///< all keys equal
};

/// One [[prompt]]. Exactly one of text, file and chat is given.
struct PromptTable {
  std::string name;                      ///< in results; "prompt1", "prompt2", ... if not given
  std::optional<std::string> text;       ///< the prompt itself; empty: begin of text alone
  std::filesystem::path file;            ///< file whose whole content is the prompt, absolute
  std::optional<std::string> chat;       ///< message of a user, put into the model's chat template
  std::optional<std::string> system;     ///< message of the system before it
  bool special_tokens = false;           ///< recognise special tokens that are written in the prompt
  std::string adapter;                   ///< one of [[adapters]]; empty: the model alone
  std::filesystem::path expect_file;     ///< what prompt and continuation must be, absolute
  std::vector<std::int64_t> expect_ids;  ///< token ids of the whole sequence
  bool operator==(const PromptTable&) const = default;  ///< all keys equal
};

/// The table [timing] of a generation, which measures itself: there is no inner loop.
struct GenerateTimingTable {
  std::int64_t warmup = 0;                                      ///< generations before the first that counts
  std::int64_t repeats = 1;                                     ///< generations that count
  bool operator==(const GenerateTimingTable&) const = default;  ///< all keys equal
};

/// What the logits of each step are compared with.
enum class GenerateReference { none, recompute };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<GenerateReference> = {"none", "recompute"};

/// The table [check] of a generation.
struct GenerateCheckTable {
  GenerateReference reference = GenerateReference::none;       ///< recompute: of the whole sequence
  bool operator==(const GenerateCheckTable&) const = default;  ///< all keys equal
};

/// The table [adapter] of a generation.
struct AdapterPathTable {
  std::filesystem::path path;                                ///< folder in PEFT's layout, absolute; empty: none
  bool live = false;                                         ///< keep it beside the weights
  bool operator==(const AdapterPathTable&) const = default;  ///< all keys equal
};

/// One of [[adapters]], among which prompts choose.
struct NamedAdapterTable {
  std::string name;                                           ///< for `PromptTable::adapter`
  std::filesystem::path path;                                 ///< folder in PEFT's layout, absolute
  bool operator==(const NamedAdapterTable&) const = default;  ///< all keys equal
};

/// The table [parallel] of a generation.
struct GenerateParallelTable {
  std::int64_t tensor = 1;                                        ///< ranks that divide the model
  RankBackend backend = RankBackend::mpi;                         ///< through what they send messages
  double timeout_s = 300;                                         ///< of every wait for another rank
  bool operator==(const GenerateParallelTable&) const = default;  ///< all keys equal
};

/// A deck of kind "generate".
struct GenerateDeck {
  RunTable run;                                   ///< [run]
  GenerateTimingTable timing;                     ///< [timing]
  ProfileTable profile;                           ///< [profile]
  OutputTable output;                             ///< [output]
  WeightsTable weights;                           ///< [weights]
  AdapterPathTable adapter;                       ///< [adapter]
  std::vector<NamedAdapterTable> adapters;        ///< [[adapters]]
  TokenizerTable tokenizer;                       ///< [tokenizer]
  SamplingTable sampling;                         ///< [sampling]
  GenerateTable generate;                         ///< [generate]
  std::optional<GenerateParallelTable> parallel;  ///< [parallel]
  GenerateCheckTable check;                       ///< [check]
  std::vector<PromptTable> prompts;               ///< [[prompt]], at least one
  DeckRecord record;                              ///< how the deck was read
};

/// Reads a deck of kind "generate". Needs neither Kokkos nor a device. The files that prompts name must be
/// readable; weights and tokenizer are not opened.
/// \throws FileError if the file cannot be read
/// \throws DeckError if the deck is invalid; the text lists every fault with its place
GenerateDeck load_generate_deck(const DeckSource& source);

/// The number of a prompt's adapter among those that stay beside the weights: [adapter] with `live`, or [[adapters]]; −1:
/// none.
std::int32_t adapter_of(const GenerateDeck& deck, const PromptTable& prompt);

/// The text of a prompt: `text`, the content of `file`, or `chat` unchanged, outside its template.
/// \throws FileError if the file cannot be read
std::string prompt_text(const PromptTable& prompt);

/// The text that a prompt and its continuation must be; nothing if the prompt has no `expect_file`.
/// \throws FileError if the file cannot be read
std::optional<std::string> expected_text(const PromptTable& prompt);

/// The execution space to run on.
/// \param table what the deck says
/// \param built_spaces lower-case names of the execution spaces of this build, the default one first
/// \throws DeckError for a space that is not built
std::string execution_space_of(const GenerateTable& table, const std::vector<std::string>& built_spaces);

/// The reference of a generation.
template <>
std::string describe_deck_markdown<GenerateDeck>();

/// The JSON Schema of a generation.
template <>
std::string describe_deck_json_schema<GenerateDeck>();

}  // namespace kformer
