// SPDX-License-Identifier: MIT
// Mutated files of tokenizers are read or refused, and tokenizers that were read accept any text.
#include "random_bytes.hpp"
#include "tokenizer_files.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

const std::vector<std::string> pieces = json_pieces({"300",
                                                     "1e9",
                                                     "4294967296",
                                                     "18446744073709551616",
                                                     "\"type\"",
                                                     "\"Sequence\"",
                                                     "\"Split\"",
                                                     "\"Regex\"",
                                                     "\"String\"",
                                                     "\"BPE\"",
                                                     "\"Metaspace\"",
                                                     "\"ByteLevel\"",
                                                     "\"NFC\"",
                                                     "\"ab\"",
                                                     "\"a b\"",
                                                     "[\"a\",\"b\"]",
                                                     "\\\\s+",
                                                     "(a*)*b",
                                                     "\\uD800",
                                                     "\xC3",
                                                     "\"byte_fallback\":true,",
                                                     "\"normalized\":true,"});

std::vector<std::string> valid_files() {
  TokenizerJson plain = byte_level({"ab", "<|x|>"});
  plain.tokens.erase(plain.tokens.begin(), plain.tokens.begin() + 250);
  plain.tokens.insert(plain.tokens.end(), {"a", "b", "<unk>"});
  plain.merges = R"(["a b"])";
  plain.model_options = R"(,"unk_token":"<unk>","fuse_unk":true,"dropout":null)";
  plain.members["added_tokens"] =
      R"([{"id":7,"content":"<|x|>","special":true,"lstrip":true},{"id":20,"content":"yy"}])";
  plain.members["pre_tokenizer"] =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\p{N}{1,3}|\\s+(?!\\S)|[^a]+"},)"
      R"("behavior":"MergedWithNext","invert":false},{"type":"ByteLevel","add_prefix_space":true,"use_regex":true}]})";
  TokenizerJson spaced = plain;
  spaced.members["pre_tokenizer"] =
      R"({"type":"Metaspace","replacement":"_","prepend_scheme":"first","split":true})";
  spaced.members["normalizer"] =
      R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"_"},{"type":"NFC"}]})";
  spaced.members["decoder"] = R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first"})";
  spaced.members["post_processor"] =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"a"}},{"Sequence":{"id":"A"}}],)"
      R"("special_tokens":{"a":{"ids":[0]}}})";
  return {plain.text(), spaced.text()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_fuzz)

BOOST_AUTO_TEST_CASE(mutated_files_are_read_or_refused) {
  constexpr int rounds = 4000;
  const auto files = valid_files();
  for (const std::string& file : files) BOOST_REQUIRE_NO_THROW(open_json(file));
  read_mutations(rounds, rounds / 100, rounds / 2, [&](Random& random) {
    std::string text = one_of(random, files);
    for (std::size_t mutations = 1 + below(random, 3); mutations > 0; --mutations)
      text = mutated(random, std::move(text), pieces);
    if (below(random, 16) == 0) text.resize(below(random, text.size() + 1));
    try {
      const auto hf = open_json(text);
      const auto ids = hf->encode_with_special("ab <|x|>yy 123\xC3\xA9 \xFF" + random_text(random));
      for (const std::int32_t id : ids) BOOST_REQUIRE((id >= 0 && id < hf->vocab_size()));
      hf->decode(ids);
    } catch (const NotSupported& refusal) {
      throw FileError(refusal.what());
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()
