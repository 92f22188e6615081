// SPDX-License-Identifier: MIT
// Vocabularies of GGUF files.
#include <boost/test/unit_test.hpp>
#include <limits>

#include "error_text.hpp"
#include "gguf_bytes.hpp"
#include "kformer/text/gguf_vocabulary.hpp"
#include "tokenizer_files.hpp"

namespace kformer::Testing {
namespace {

const std::string space = "\xE2\x96\x81";

GgufVocabulary byte_level_vocabulary(const std::string& pre) {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = pre;
  for (int byte = 0; byte < 256; ++byte) vocabulary.tokens.push_back(byte_letter(byte));
  for (const char* token : {"12", "123", "1234", "<|end|>", "user"}) vocabulary.tokens.push_back(token);
  vocabulary.types.assign(vocabulary.tokens.size(), 1);
  vocabulary.types[259] = 3;
  vocabulary.types[260] = 4;
  vocabulary.merges = {"1 2", "12 3", "123 4"};
  vocabulary.eos = 259;
  return vocabulary;
}

/// The best score first: ab before the space with a, which would leave b alone.
GgufVocabulary scored_vocabulary() {
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "<s>", "</s>", "<0xC3>",    "<0xA9>",    space,
                       "a",     "b",   "ab",   space + "a", space + "ab"};
  vocabulary.types = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1};
  vocabulary.scores = {0, 0, 0, 0, 0, -5, -6, -7, -1, -2, -3};
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.unk = 0;
  return vocabulary;
}

std::string refusal(const GgufVocabulary& vocabulary) {
  return file_error([&] { make_tokenizer(vocabulary, "m.gguf"); });
}

std::string strings_value(const std::vector<std::string>& texts) {
  std::string elements;
  for (const auto& text : texts) elements += raw_text(text);
  return array_value(8, texts.size(), elements);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_gguf)

BOOST_AUTO_TEST_CASE(names_of_splits_mean_patterns) {
  const auto ids = [](const std::string& pre) {
    return make_tokenizer(byte_level_vocabulary(pre), "m")->encode("1234");
  };
  BOOST_TEST(ids("gpt-2") == Ids{258});
  BOOST_TEST(ids("llama-bpe") == (Ids{257, '4'}));
  BOOST_TEST(ids("qwen2") == (Ids{'1', '2', '3', '4'}));
  BOOST_TEST(ids("smollm") == (Ids{'1', '2', '3', '4'}));
  BOOST_TEST(ids("default") == (Ids{257, '4'}));
  BOOST_TEST(ids("") == ids("default"));
  try {
    ids("unheard-of");
    BOOST_ERROR("expected an error");
  } catch (const NotSupported& error) {
    BOOST_TEST(std::string(error.what())
                   .find("'m': tokenizer.ggml.pre is not supported: it is 'unheard-of'; supported: "
                         "llama-bpe") == 0);
  }
}

BOOST_AUTO_TEST_CASE(types_tell_special_tokens) {
  GgufVocabulary vocabulary = byte_level_vocabulary("gpt-2");
  vocabulary.eot = 259;
  const auto gguf = make_tokenizer(vocabulary, "m");
  BOOST_TEST(gguf->eos() == Ids{259});
  BOOST_TEST(gguf->encode("<|end|>").size() == 7);
  BOOST_TEST(gguf->encode_with_special("1<|end|>") == (Ids{'1', 259}));
  BOOST_TEST(gguf->encode("1user") == (Ids{'1', 260}));
  BOOST_TEST(gguf->decode(Ids{'1', 259, 260}) == "1user");
  vocabulary.eot = 260;
  BOOST_TEST(make_tokenizer(vocabulary, "m")->eos() == (Ids{259, 260}));
}

BOOST_AUTO_TEST_CASE(beginnings_are_added_as_the_file_or_the_family_says) {
  GgufVocabulary vocabulary = byte_level_vocabulary("llama-bpe");
  BOOST_TEST(!make_tokenizer(vocabulary, "m")->adds_bos());  // there is none
  vocabulary.bos = 5;
  BOOST_TEST(make_tokenizer(vocabulary, "m")->adds_bos());
  vocabulary.add_bos = false;
  BOOST_TEST(!make_tokenizer(vocabulary, "m")->adds_bos());
  vocabulary = byte_level_vocabulary("gpt-2");
  vocabulary.bos = 5;
  BOOST_TEST(!make_tokenizer(vocabulary, "m")->adds_bos());
  BOOST_TEST(make_tokenizer(scored_vocabulary(), "m")->adds_bos());
}

BOOST_AUTO_TEST_CASE(scores_order_merges) {
  GgufVocabulary vocabulary = scored_vocabulary();
  const auto gguf = make_tokenizer(vocabulary, "m");
  BOOST_TEST(gguf->encode("ab a") == (Ids{10, 9}));
  BOOST_TEST(gguf->encode("ba") == (Ids{5, 7, 6}));
  BOOST_TEST(gguf->encode("a\xC3\xA9") == (Ids{9, 3, 4}));
  BOOST_TEST(gguf->encode("x") == (Ids{5, 0}));
  BOOST_TEST(gguf->decode(Ids{1, 10, 9, 3, 4, 2}) == "ab a\xC3\xA9");
  BOOST_TEST(gguf->encode_with_special("<s>a</s>") == (Ids{1, 9, 2}));
  GgufVocabulary other = vocabulary;
  other.tokens[10] = "xy";
  BOOST_TEST(make_tokenizer(other, "m")->encode("ab") == (Ids{5, 8}));
  vocabulary.add_space_prefix = false;
  BOOST_TEST(make_tokenizer(vocabulary, "m")->encode("ab a") == (Ids{8, 9}));
  BOOST_TEST(make_tokenizer(vocabulary, "m")->decode(Ids{10}) == " ab");
}

// As in the programs that these files are from, and unlike tokenizer.json.
BOOST_AUTO_TEST_CASE(of_two_equal_merges_the_first_counts) {
  GgufVocabulary vocabulary = byte_level_vocabulary("gpt-2");
  vocabulary.tokens[257] = "23";
  vocabulary.merges = {"1 2", "2 3", "1 2"};
  BOOST_TEST(make_tokenizer(vocabulary, "m")->encode("123") == (Ids{256, '3'}));
}

BOOST_AUTO_TEST_CASE(broken_vocabularies_are_refused) {
  GgufVocabulary vocabulary = byte_level_vocabulary("gpt-2");
  vocabulary.merges.push_back("1 x9");
  BOOST_TEST(refusal(vocabulary) ==
             "'m.gguf' is not a valid tokenizer: merge 3 of '1' and 'x9': 'x9' is not a token");
  vocabulary.merges = {"12"};
  BOOST_TEST(refusal(vocabulary) ==
             "'m.gguf' is not a valid tokenizer: tokenizer.ggml.merges has '12', which is not a pair of "
             "tokens");
  vocabulary = byte_level_vocabulary("gpt-2");
  vocabulary.types.pop_back();
  BOOST_TEST(refusal(vocabulary) ==
             "'m.gguf' is not a valid tokenizer: tokenizer.ggml.token_type has 260 entries for 261 tokens");
  vocabulary = byte_level_vocabulary("gpt-2");
  vocabulary.tokens[3] = vocabulary.tokens[2];
  BOOST_TEST(refusal(vocabulary).find("it has the id 2 already") != std::string::npos);
  vocabulary = byte_level_vocabulary("gpt-2");
  vocabulary.bos = 261;
  BOOST_TEST(refusal(vocabulary) ==
             "'m.gguf' is not a valid tokenizer: tokenizer.ggml.bos_token_id is 261, which is not a token id");
  vocabulary = scored_vocabulary();
  vocabulary.scores[4] = std::numeric_limits<float>::quiet_NaN();
  BOOST_TEST(refusal(vocabulary) ==
             "'m.gguf' is not a valid tokenizer: tokenizer.ggml.scores: the score of token 4 is not a number");
  vocabulary.scores.clear();
  BOOST_TEST(refusal(vocabulary) ==
             "'m.gguf' is not a valid tokenizer: tokenizer.ggml.scores has 0 entries for 11 tokens");
  vocabulary.tokens.clear();
  BOOST_TEST(refusal(vocabulary) == "'m.gguf' is not a valid tokenizer: it has no tokenizer.ggml.tokens");
  vocabulary.model = "bert";
  BOOST_CHECK_THROW(make_tokenizer(vocabulary, "m"), NotSupported);
}

BOOST_AUTO_TEST_CASE(files_hold_vocabularies) {
  const GgufVocabulary vocabulary = scored_vocabulary();
  std::string scores, types;
  for (const float score : vocabulary.scores) scores += raw(score);
  for (const auto type : vocabulary.types) types += raw(static_cast<std::int32_t>(type));
  GgufImage image = small_gguf_model();
  image.set("tokenizer.ggml.model", text_value("llama"));
  image.set("tokenizer.ggml.tokens", strings_value(vocabulary.tokens));
  image.set("tokenizer.ggml.scores", array_value(6, vocabulary.scores.size(), scores));
  image.set("tokenizer.ggml.token_type", array_value(5, vocabulary.types.size(), types));
  image.set("tokenizer.ggml.unknown_token_id", u32_value(0));
  image.set("tokenizer.chat_template", text_value("[INST]"));
  const ScratchDirectory folder;
  put_contents(folder / "m.gguf", image.bytes());
  const auto gguf = open_tokenizer(TokenizerFormat::gguf, folder / "m.gguf");
  BOOST_TEST(gguf->encode("ab a") == (Ids{10, 9}));
  BOOST_TEST(gguf->bos().value() == 1);
  BOOST_TEST(gguf->eos() == Ids{2});
  BOOST_TEST(gguf->chat_template() == "[INST]");
  put_contents(folder / "none.gguf", small_gguf_model().bytes());
  BOOST_TEST(file_error([&] {
               open_tokenizer(TokenizerFormat::gguf, folder / "none.gguf");
             }).find("none.gguf' is not a valid tokenizer: it has no tokenizer.ggml.model") !=
             std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
