// SPDX-License-Identifier: MIT
#include "data/documents.hpp"

#include "data/text_encoder.hpp"
#include "io/utf8.hpp"

namespace kformer::Impl::data {
namespace {

std::int64_t malformed_places(std::string_view text) {
  std::int64_t count = 0;
  while (!text.empty()) {
    const Utf8Character character = first_character(text);
    count += character.kind == Utf8Character::Kind::whole ? 0 : 1;
    text.remove_prefix(character.bytes);
  }
  return count;
}

void begin_document(std::optional<std::int32_t> bos, TokenDocuments& documents) {
  if (bos) documents.tokens.push_back(*bos);
}

}  // namespace

TokenDocuments text_document(std::string_view contents, const Tokenizer& tokenizer,
                             std::optional<std::int32_t> bos) {
  const std::string_view text = without_byte_order_mark(contents);
  TokenDocuments documents;
  documents.malformed = malformed_places(text);
  begin_document(bos, documents);
  const auto ids = tokenizer.encode(text);
  documents.tokens.insert(documents.tokens.end(), ids.begin(), ids.end());
  documents.end_document();
  return documents;
}

TokenDocuments synthetic_documents(const SyntheticOptions& options, const Tokenizer& tokenizer,
                                   std::optional<std::int32_t> bos) {
  const TextEncoder encoder(tokenizer);
  TokenDocuments documents;
  const auto mark = [&](bool learnt) { documents.learnt.resize(documents.tokens.size(), learnt ? 1 : 0); };
  for (std::int64_t i = 0; i < options.samples; ++i) {
    const SyntheticSample sample = synthetic_sample(options, i);
    begin_document(bos, documents);
    encoder.append(sample.prompt, TextEncoder::After::nothing, documents.tokens);
    mark(false);
    encoder.append(sample.answer, TextEncoder::After::text, documents.tokens);
    if (!tokenizer.eos().empty()) documents.tokens.push_back(tokenizer.eos().front());
    mark(true);
    documents.end_document();
  }
  return documents;
}

}  // namespace kformer::Impl::data
