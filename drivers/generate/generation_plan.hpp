// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/memory/scratch.hpp"
#include "decks/generate_deck.hpp"
#include "generate/prompt_encoder.hpp"
#include "kformer/io/checkpoint.hpp"
#include "language_model/text_engine.hpp"

namespace kformer::drivers {

/// What a generation needs of its files and of memory, known before any weight is read.
class GenerationPlan {
 public:
  /// Opens checkpoint, adapters and tokenizer of a deck, encodes its prompts, and counts the memory.
  /// \param tensor the ranks that divide the model, or null
  /// \throws FileError if a file cannot be read or does not match the model
  /// \throws NotSupported if the ranks do not divide the model
  GenerationPlan(const GenerateDeck& deck, const std::string& space,
                 const std::shared_ptr<Communicator>& tensor);

  /// The checkpoint, of which only headers were read.
  const Checkpoint& checkpoint() const { return m_checkpoint; }
  /// The tokenizer and what the deck says of it.
  const PromptEncoder& encoder() const { return m_encoder; }
  /// The engine.
  const EngineTask& task() const { return m_task; }
  /// The memory that it will take.
  const std::shared_ptr<const Ledger>& forecast() const { return m_forecast; }

  /// Bytes of scratch memory that each thread needs.
  std::size_t scratch_per_thread() const;

  /// \param available bytes that this rank may take, or nothing if the system does not tell
  /// \throws OutOfMemory if the forecast and scratch memory are more
  void require_memory(const std::optional<std::size_t>& available) const;
  /// What the files have in them, by the keys that name them; empty where there is none. Weights count by some bytes of each,
  /// and the tokenizer also by what it makes of the prompts.
  std::map<std::string, std::string> contents() const;
  /// What is legal but perhaps not meant: a sentence, or nothing.
  std::string note() const;
  /// Lines on the model, the prompts and the memory, for --dry-run.
  /// \throws NotSupported if a prompt cannot be encoded
  std::string text() const;

 private:
  std::int64_t longest_prompt() const;
  std::size_t scratch() const { return forecast_scratch(m_space, scratch_per_thread()); }
  std::vector<std::int32_t> ids_of(const PromptTable& prompt) const;

  const GenerateDeck& m_deck;
  std::string m_space;
  Checkpoint m_checkpoint;
  PromptEncoder m_encoder;
  EngineTask m_task;
  std::shared_ptr<const Ledger> m_forecast;
};

/// Peak bytes of each class.
std::array<std::size_t, memory_classes> peaks_of(const Ledger& ledger);

}  // namespace kformer::drivers
