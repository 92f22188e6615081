// SPDX-License-Identifier: MIT
#include "kformer/text/gguf_vocabulary.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "io/content_hash.hpp"
#include "text/base/file.hpp"
#include "text/gguf/scored_merging.hpp"
#include "text/gguf/splits.hpp"
#include "text/steps/spelled_spaces.hpp"
#include "text/tokenizer/bpe.hpp"
#include "text/tokenizer/pipeline.hpp"

namespace kformer {
namespace Impl::tokenizers {
namespace {

/// tokenizer.ggml.token_type
enum class TokenType : std::int64_t { normal = 1, unknown, control, user_defined, unused, byte };

TokenType type_of(const GgufVocabulary& vocabulary, std::size_t id) {
  return vocabulary.types.empty() ? TokenType::normal : static_cast<TokenType>(vocabulary.types[id]);
}

void require_one_per_token(const char* key, std::size_t count, const GgufVocabulary& vocabulary,
                           const std::string& file) {
  if (count != vocabulary.tokens.size())
    refuse(file, std::string("tokenizer.ggml.") + key + " has " + std::to_string(count) + " entries for " +
                     std::to_string(vocabulary.tokens.size()) + " tokens");
}

std::optional<std::int32_t> checked_id(const char* key, std::optional<std::int64_t> id, const Pipeline& parts,
                                       const std::string& file) {
  if (!id) return {};
  if (!parts.pieces->has(*id))
    refuse(file,
           std::string("tokenizer.ggml.") + key + " is " + std::to_string(*id) + ", which is not a token id");
  return static_cast<std::int32_t>(*id);
}

/// Every token, and those among them that are found as they are spelled.
void read_tokens(const GgufVocabulary& vocabulary, Pipeline& parts, const std::string& file) {
  if (vocabulary.tokens.empty()) refuse(file, "it has no tokenizer.ggml.tokens");
  if (!vocabulary.types.empty()) require_one_per_token("token_type", vocabulary.types.size(), vocabulary, file);
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const std::string& text = vocabulary.tokens[i];
    parts.pieces->add(text, id, file);
    const TokenType type = type_of(vocabulary, i);
    const bool special = type == TokenType::control || type == TokenType::unknown;
    if (special) Pipeline::mark(parts.special, id);
    if (special || type == TokenType::user_defined) parts.added_raw.add({text, id, special}, file);
  }
}

void read_ends(const GgufVocabulary& vocabulary, bool adds_bos, Pipeline& parts, const std::string& file) {
  parts.bos = checked_id("bos_token_id", vocabulary.bos, parts, file);
  for (const auto& id : {checked_id("eos_token_id", vocabulary.eos, parts, file),
                         checked_id("eot_token_id", vocabulary.eot, parts, file)})
    if (id && std::find(parts.eos.begin(), parts.eos.end(), *id) == parts.eos.end()) parts.eos.push_back(*id);
  parts.adds_bos = parts.bos && vocabulary.add_bos.value_or(adds_bos);
  parts.chat_template = vocabulary.chat_template;
}

Pipeline read_byte_level(const GgufVocabulary& vocabulary, const std::string& file) {
  Pipeline parts;
  GgufSplit split = gguf_split(vocabulary.pre, file);
  read_tokens(vocabulary, parts, file);
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
    if (type_of(vocabulary, i) == TokenType::user_defined)
      Pipeline::mark(parts.literal, static_cast<std::int32_t>(i));
  Bpe::Options options;
  options.whole_words = split.whole_words;
  Bpe bpe(*parts.pieces, options);
  for (const std::string& merge : vocabulary.merges) {
    const auto space = merge.find(' ', 1);
    if (merge.empty() || space == std::string::npos)
      refuse(file, "tokenizer.ggml.merges has " + in_quotes(merge) + ", which is not a pair of tokens");
    bpe.add_merge(std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1),
                  EqualMerges::first_counts, file);
  }
  parts.split_steps = std::move(split.steps);
  parts.merge = [bpe = std::move(bpe)](std::string_view word, std::vector<std::int32_t>& ids) {
    bpe.encode(word, ids);
  };
  read_ends(vocabulary, split.adds_bos, parts, file);
  return parts;
}

Pipeline read_scored(const GgufVocabulary& vocabulary, const std::string& file) {
  Pipeline parts;
  read_tokens(vocabulary, parts, file);
  require_one_per_token("scores", vocabulary.scores.size(), vocabulary, file);
  std::vector<bool> merges(vocabulary.tokens.size());
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenType type = type_of(vocabulary, i);
    merges[i] = type == TokenType::normal || type == TokenType::user_defined || type == TokenType::unused;
    if (std::isnan(vocabulary.scores[i]))
      refuse(file, "tokenizer.ggml.scores: the score of token " + std::to_string(i) + " is not a number");
  }
  const auto unknown = checked_id("unknown_token_id", vocabulary.unk, parts, file);
  ScoredMerging merging(*parts.pieces, vocabulary.scores, std::move(merges), unknown);
  parts.merge = [merging = std::move(merging)](std::string_view text, std::vector<std::int32_t>& ids) {
    merging.encode(text, ids);
  };
  parts.spelling = Spelling::spaces;
  if (vocabulary.add_space_prefix.value_or(true)) {
    parts.dropped_spaces = DroppedSpaces::first;
    parts.normal_steps.push_back(prepend_text(" "));
  }
  parts.normal_steps.push_back(replace_text(find_literal(" "), std::string(spelled_space)));
  read_ends(vocabulary, true, parts, file);
  return parts;
}

/// What decides how text is split.
std::string fingerprint_of(const GgufVocabulary& vocabulary) {
  std::string all = vocabulary.model + '\0' + vocabulary.pre;
  for (const auto* texts : {&vocabulary.tokens, &vocabulary.merges})
    for (const std::string& text : *texts) all += '\0' + std::to_string(text.size()) + '\0' + text;
  all += hash_of(std::as_bytes(std::span(vocabulary.scores))).text();
  all += hash_of(std::as_bytes(std::span(vocabulary.types))).text();
  all += std::to_string(vocabulary.unk.value_or(-1)) + (vocabulary.add_space_prefix.value_or(true) ? "s" : "n");
  return hash_of(all).text();
}

}  // namespace
}  // namespace Impl::tokenizers

std::unique_ptr<const Tokenizer> make_tokenizer(const GgufVocabulary& vocabulary, const std::string& source) {
  using namespace Impl::tokenizers;
  if (vocabulary.model != "gpt2" && vocabulary.model != "llama")
    unsupported(source, "tokenizer.ggml.model",
                "it is " + in_quotes(vocabulary.model) + "; supported: gpt2, llama");
  Pipeline parts =
      vocabulary.model == "gpt2" ? read_byte_level(vocabulary, source) : read_scored(vocabulary, source);
  parts.fingerprint = fingerprint_of(vocabulary);
  return make_pipeline_tokenizer(std::move(parts));
}

}  // namespace kformer
