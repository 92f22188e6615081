// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kformer/core/types/data_format.hpp"
#include "kformer/data/synthetic.hpp"
#include "kformer/text/chat_template.hpp"
#include "kformer/text/tokenizer.hpp"
#include "kformer/train/token_sequence.hpp"

/// \file
/// Training data: files become sequences of tokens of one length (docs/data.md).

namespace kformer {

/// Where tokenised files are kept: `$XDG_CACHE_HOME/kformer`, or `$HOME/.cache/kformer`; empty if the
/// environment has neither.
std::filesystem::path default_cache_folder();

/// A data set.
struct DataOptions {
  DataFormat format = DataFormat::text;      ///< what the files contain
  std::vector<std::filesystem::path> files;  ///< in this order; none for synthetic
  Packing packing = Packing::stream;         ///< how documents fill sequences
  std::int64_t seq_len = 1024;               ///< tokens of a sequence
  std::int64_t vocab_size = 0;               ///< every token must be below; 0: not checked
  std::optional<ChatTemplate> chat;          ///< chat: how messages are written; none: the tokenizer's template
  bool answers_only = true;  ///< chat, synthetic: whether answers alone are targets, or all tokens
  std::optional<std::filesystem::path> cache;  ///< folder of tokenised files; none: `default_cache_folder()`,
                                               ///< an empty path: every file is tokenised every time
  SyntheticOptions synthetic;                  ///< synthetic: what is generated
  std::optional<std::int32_t> bos;  ///< beginning-of-text token of the model, for a tokenizer without one
  std::optional<bool> add_bos;      ///< chat: whether it precedes a conversation; none: as the tokenizer says
};

/// What a data set consists of.
struct DataReport {
  std::int64_t documents = 0;         ///< files of text, conversations, samples, parts of token files
  std::int64_t tokens = 0;            ///< of all documents
  std::int64_t target_tokens = 0;     ///< tokens whose loss counts, in one pass over all sequences
  std::int64_t sequences = 0;         ///< as `TokenDataset::size`
  std::int64_t least_sequences = 0;   ///< best_fit, pad: no packing of these pieces needs fewer (`least_bins`)
  std::int64_t dropped_tokens = 0;    ///< stream: at the end, in no sequence
  std::int64_t padding_tokens = 0;    ///< best_fit, pad: places of sequences without a token
  double fill = 0;                    ///< share of the places of sequences that hold a token
  std::int64_t longest_document = 0;  ///< tokens
  std::vector<std::int64_t>
      lengths;                     ///< lengths[k]: documents of 2^(k−1) to 2^k − 1 tokens; lengths[0]: of none
  std::int64_t malformed = 0;      ///< text: places that are not UTF-8
  std::int64_t cached_files = 0;   ///< files whose tokens came from the cache
  std::vector<std::string> notes;  ///< what a user should know, a sentence each
};

/// Sequences of tokens for training. Immutable, so that threads may share one.
///
/// Let t be the tokens of all documents, one after another, and S = `seq_len`.
/// * stream: sequence i has ids t[iS … iS+S−1] and targets t[iS+1 … iS+S]; one start. What is left over is
///   dropped. There are ⌊(tokens − 1)/S⌋ sequences.
/// * best_fit: documents are cut into pieces of S tokens, the last one shorter, and pieces are packed by
///   `best_fit_decreasing`. Each piece has a start.
/// * pad: as best_fit, one piece in each sequence.
///
/// In the last two a target is the next token of the same document, so a document of n tokens has n − 1 targets
/// however it is cut. Targets are −100 at the last token of a document, at padding (whose ids are 0 and which
/// follows the last piece without a start of its own), and, with `answers_only`, for tokens that are not to be
/// learnt: in conversations all but the assistant's answers and the tokens that end them, in samples, and in prompts
/// with completions, all but the answer.
class TokenDataset {
 public:
  /// Opens a data set; tokenises files that the cache does not have. HDF5 files are read through a library that
  /// is not safe for threads: open one such data set at a time.
  /// \param options   format, files, packing
  /// \param tokenizer of text, conversations and samples. Not kept
  /// \throws FileError naming the file, the line and what was expected, also where messages have no template; or if
  ///         there are no documents, no target tokens, or fewer tokens than a sequence needs
  /// \throws NotSupported if the tokenizer refuses a text
  /// \throws Error if an option is out of range
  static TokenDataset open(const DataOptions& options, const Tokenizer& tokenizer);

  /// Opens token files, which need no tokenizer, or samples, in the tokens of `TokenizerFormat::byte`.
  /// \throws NotSupported for text and chat; otherwise as above
  static TokenDataset open(const DataOptions& options);

  ~TokenDataset();
  TokenDataset(TokenDataset&& other) noexcept;             ///< moves the contents
  TokenDataset& operator=(TokenDataset&& other) noexcept;  ///< moves the contents

  /// The number of sequences.
  std::int64_t size() const;

  /// Reads a sequence; its arrays keep their memory. Thread-safe.
  /// \param index    0 … size() − 1
  /// \param sequence receives it
  /// \throws Error if `index` is out of range
  void read(std::int64_t index, TokenSequence& sequence) const;

  /// How many places of a sequence hold a token. Padding follows, whose id is that of a token, too.
  /// \param index 0 … size() − 1
  /// \throws Error if `index` is out of range
  std::int64_t tokens_in(std::int64_t index) const;

  /// What the data set consists of.
  const DataReport& report() const;

  /// Identifies the sequences: a hash of all tokens, documents and masks, the packing, `seq_len`, and `answers_only`.
  std::string fingerprint() const;

 private:
  struct Contents;
  explicit TokenDataset(std::unique_ptr<const Contents> contents);
  std::unique_ptr<const Contents> m_contents;
};

}  // namespace kformer
