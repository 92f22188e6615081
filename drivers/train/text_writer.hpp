// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "decks/train/train_deck.hpp"
#include "generate/prompt_encoder.hpp"
#include "learner/learner.hpp"
#include "train/history.hpp"

namespace kformer::drivers {

/// Writes texts with the weights as they are now. For each token, everything is computed again, of all texts together.
class TextWriter {
 public:
  /// Encodes the prompts.
  /// \throws NotSupported if a prompt has no token, or does not leave room for one
  TextWriter(const TrainDeck& deck, const PromptEncoder& encoder);

  /// A text for each prompt. Draws are a function of the run's seed, the step and the prompt.
  /// \param stop called before each token of the texts; if it is true, they are left as they are
  std::vector<SampleRecord> write(Learner& learner, const std::function<bool()>& stop) const;

 private:
  struct Text;
  // Whether it goes on.
  bool extend(Text& text, const std::vector<double>& logits) const;
  std::int32_t choose(const std::vector<double>& logits, std::uint64_t draw) const;

  const SamplesTable& m_table;
  const PromptEncoder& m_encoder;
  std::uint64_t m_seed;
  std::size_t m_seq_len;
  std::vector<std::string> m_prompts;
  std::vector<std::vector<std::int32_t>> m_tokens;
};

}  // namespace kformer::drivers
