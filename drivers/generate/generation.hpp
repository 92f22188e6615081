// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "decks/generate_deck.hpp"
#include "kformer/memory/ledger.hpp"
#include "sweep/measurement.hpp"

/// \file
/// The interface of the driver to a model and its tokenizer.

namespace kformer::drivers {

/// Why a sequence ended (`no_token`: every logit was NaN or −∞, so that none could be chosen); the names are
/// those of the flag column `end`.
enum class SequenceEnd { max_new_tokens, max_seq_len, end_of_text, stop_string, interrupted, no_token };
/// The names of SequenceEnd, in order.
inline const std::vector<std::string> sequence_end_names{"max_new_tokens", "max_seq_len", "end_of_text",
                                                         "stop_string",    "interrupted", "no_token"};

/// A token of a sequence.
struct TokenRecord {
  std::int32_t id = 0;  ///< in the vocabulary
  std::string bytes;    ///< what it adds to the text; nothing for special tokens
  /// Of the token after those before it, from the model alone, without temperature and filters; NaN if unknown.
  double log_probability = std::numeric_limits<double>::quiet_NaN();
  double time = std::numeric_limits<double>::quiet_NaN();  ///< s from the start to the end of its step
};

/// One row of a batch.
struct Sequence {
  std::int64_t prompt_tokens = 0;                 ///< the first ones, with the beginning of text
  std::vector<TokenRecord> tokens;                ///< of the prompt and new
  SequenceEnd end = SequenceEnd::max_new_tokens;  ///< why it ended
  std::vector<double> last_logits;                ///< after the last token, if wanted
};

/// The results of one generation.
struct Generation {
  std::vector<Sequence> sequences;  ///< rows of the batch
  std::int64_t prefill_tokens = 0;  ///< computed; those that rows share count once
  double prefill_seconds = 0;       ///< until the first new tokens were chosen
  std::int64_t decode_tokens = 0;   ///< new tokens of all rows, without the first ones
  std::int64_t decode_steps = 0;    ///< after prefill; a row that has ended has no part in them
  double decode_seconds = 0;        ///< of the steps after prefill
  double decode_bytes_min = 0;      ///< compulsory traffic of these steps: weights and cache, once per step
  /// Largest difference of a logit from a full recomputation in double; NaN without `check.reference`.
  double max_logit_err = std::numeric_limits<double>::quiet_NaN();
  /// Status, message, kernels, memory and profile. `status` is ok or unchecked if the generation went well, and
  /// failed_check if logits are beyond the tolerance rule.
  Measurement measurement;
};

/// A request to generate.
struct GenerationTask {
  std::vector<std::int32_t> prompt;  ///< tokens all rows start with, with the beginning of text
  std::int64_t batch = 1;            ///< rows
  std::int32_t adapter = -1;         ///< of all rows, as `adapter_of`
  bool profile = false;              ///< time every kernel; its fences make other times meaningless
  bool check = true;                 ///< compare logits, if the deck requests it
  /// Called with text of row 0 as soon as it is complete, whole characters only.
  std::function<void(std::string_view text)> on_text;
  std::function<bool()> stop;  ///< called between steps
};

/// A model with its tokenizer, loaded, behind an interface without execution space and precision.
class TextGenerator {
 public:
  virtual ~TextGenerator() = default;
  /// The tokens of a prompt: the chat template is applied, and the beginning of text is put before it.
  /// \throws NotSupported as PromptEncoder::encode
  virtual std::vector<std::int32_t> encode(const PromptTable& prompt) const = 0;
  /// Continues a prompt with the sampling and the cache of the deck.
  /// \throws OutOfMemory with the ledger
  virtual Generation generate(const GenerationTask& task) = 0;
};

class GenerationPlan;

/// Loads the weights of a deck.
/// \param space  name of the execution space
/// \param ledger where memory is booked
/// \throws OutOfMemory with the ledger
std::unique_ptr<TextGenerator> make_text_generator(const GenerateDeck& deck, const std::string& space,
                                                   GenerationPlan plan, const std::shared_ptr<Ledger>& ledger);

}  // namespace kformer::drivers
