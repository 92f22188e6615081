// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "generate/generation.hpp"
#include "sweep/measurement_tables.hpp"

namespace kformer::drivers {

/// Identifies a generation.
struct GenerationLabel {
  std::string prompt;       ///< name
  std::string prompt_text;  ///< as the deck has it
  std::int64_t repeat = 0;  ///< of the prompt, from 0
  std::string adapter{};    ///< its name; empty: none
};

/// What a result file says of a generation that came to its end.
struct FinishedGeneration {
  std::string prompt;              ///< name
  std::int64_t repeat = 0;         ///< of the prompt
  CaseStatus status{};             ///< how it ended
  std::string prompt_text;         ///< as the file has it; empty if it failed
  std::vector<std::string> texts;  ///< new text of every sequence; none if it failed
};

/// A row of /tokens.
struct TokenRow : TokenRecord {
  std::int64_t generation = 0;  ///< row in /generations
  std::int64_t position = 0;    ///< place in the sequence
  bool is_new = false;          ///< whether it was generated
};

/// The tables of a generation in its result file; one call per finished prompt and repeat.
class GenerateResults {
 public:
  /// Declares the tables; they have the rows of the run that the file resumes. A generation that was stopped, or that
  /// ended the run for a lack of memory, is not among them.
  /// \param space    name of the execution space
  GenerateResults(ResultFile& file, const GenerateDeck& deck, std::string space);

  /// Generations in the file.
  std::size_t finished() const { return m_cases.rows(); }
  /// One of them.
  FinishedGeneration generation(std::size_t row) const;
  /// A row of /machine, unless the run that is resumed has one.
  void add_machine(const measure::MachineLimits& limits);
  /// The rows of one generation in every table; the file is checkpointed.
  void add(const GenerationLabel& label, const Generation& generation);

 private:
  void restore(const GenerateDeck& deck);
  std::pair<std::size_t, std::size_t> sequences_of(std::size_t row) const;
  void add_sequence(const GenerationLabel& label, const Sequence& sequence, std::int64_t row);

  ResultFile& m_file;
  GenerateTable m_generate;
  std::int64_t m_seed;
  std::string m_space;
  Table& m_cases;
  Table& m_generations;
  RecordTable<TokenRow> m_tokens;
  Table* m_logits;  // null if they are not wanted
  MeasurementTables m_measurements;
};

/// Shortest time that the bandwidth beside a generation allows for the steps after prefill, over the time they took;
/// NaN if there were none.
double share_of_limit(const Generation& generation);

/// Text of the new tokens.
std::string new_text_of(const Sequence& sequence);
/// Mean of −log-probability of the tokens from number `first` on; NaN if there are none or one is not known.
double mean_nll(const Sequence& sequence, std::int64_t first);
/// New tokens of all rows.
std::int64_t new_tokens_of(const Generation& generation);

}  // namespace kformer::drivers
