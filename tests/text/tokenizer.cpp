// SPDX-License-Identifier: MIT
// Tokenizers: bytes, growing text, and the SentencePiece model in the data folder.
#include "kformer/text/tokenizer.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>
#include <sstream>

#include "kformer/core/error.hpp"
#include "tokenizer_files.hpp"

namespace kformer::Testing {
namespace {

std::filesystem::path stories() {
  const char* data = std::getenv("KFORMER_DATA");
  return std::filesystem::path(data ? data : "") / "stories260K";
}

/// The model of SentencePiece, or none where data or library are missing.
std::unique_ptr<const Tokenizer> sentencepiece() {
  try {
    return open_tokenizer(TokenizerFormat::sentencepiece, stories() / "tokenizer.model");
  } catch (const NotSupported& error) {
    BOOST_TEST(std::string(error.what()).find("-DKformer_ENABLE_SENTENCEPIECE=ON") != std::string::npos);
    return nullptr;
  }
}

boost::test_tools::assertion_result data_is_there(boost::unit_test::test_unit_id) {
  if (std::filesystem::exists(stories() / "tokenizer.model")) return true;
  std::puts("skipped: KFORMER_DATA names no folder with stories260K");  // ctest looks for this
  return false;
}

/// The numbers of `"key": [1, 2, 3]` after `from` in a JSON text.
Ids numbers_after(const std::string& json, const std::string& key, std::size_t from) {
  const auto begin = json.find('[', json.find(key, from)) + 1;
  std::string list = json.substr(begin, json.find(']', begin) - begin);
  std::replace(list.begin(), list.end(), ',', ' ');
  std::istringstream stream(list);
  return {std::istream_iterator<std::int32_t>(stream), {}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizer)

BOOST_AUTO_TEST_CASE(bytes_are_tokens) {
  const auto bytes = open_tokenizer(TokenizerFormat::byte, {});
  BOOST_TEST(bytes->vocab_size() == 258);
  BOOST_TEST(bytes->bos().value() == 256);
  BOOST_TEST(bytes->eos() == Ids{257});
  BOOST_TEST(bytes->encode("a\xFF<s>") == (Ids{97, 255, 60, 115, 62}));
  BOOST_TEST(bytes->encode_with_special("<s>a</s>") == (Ids{256, 97, 257}));
  BOOST_TEST(bytes->decode_bytes(Ids{256, 97, 255, 257, 300, -1}) == "a\xFF");
  BOOST_TEST(bytes->decode(Ids{97, 255}) == "a\xEF\xBF\xBD");
  BOOST_TEST(bytes->piece(10) == "<0x0A>");
  BOOST_TEST(bytes->id_of("<0x0A>").value() == 10);
  BOOST_TEST(!bytes->id_of("<0x0a>").has_value());
}

BOOST_AUTO_TEST_CASE(streams_hold_unfinished_characters) {
  const auto bytes = open_tokenizer(TokenizerFormat::byte, {});
  TokenStream stream(*bytes);
  BOOST_TEST(stream.push('x') == "x");
  BOOST_TEST(stream.push(0xF0) == "");
  BOOST_TEST(stream.push(0x9F) == "");
  BOOST_TEST(stream.push(0x98) == "");
  BOOST_TEST(stream.push(0x80) == "\xF0\x9F\x98\x80");
  BOOST_TEST(stream.push(0xE4) == "");
  BOOST_TEST(stream.push('y') == "\xEF\xBF\xBDy");  // the character will never be finished
  BOOST_TEST(stream.push(0xE4) == "");
  BOOST_TEST(stream.push(0xBD) == "");
  BOOST_TEST(stream.finish() == "\xEF\xBF\xBD");
  BOOST_TEST(stream.finish() == "");
}

BOOST_AUTO_TEST_CASE(streams_of_any_bytes_join_to_what_decode_returns) {
  const auto bytes = open_tokenizer(TokenizerFormat::byte, {});
  // Where the bytes of characters begin, go on and may not go on.
  const Ids interesting{0x41, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1,
                        0xC2, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF};
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    Ids ids;
    for (int i = 0; i < 12; ++i) ids.push_back(interesting[random() % interesting.size()]);
    TokenStream stream(*bytes);
    std::string joined;
    for (const std::int32_t id : ids) joined += stream.push(id);
    BOOST_REQUIRE(joined + stream.finish() == bytes->decode(ids));
  }
}

BOOST_AUTO_TEST_CASE(malformed_pieces_become_one_character_each) {
  const auto bytes = open_tokenizer(TokenizerFormat::byte, {});
  const auto decoded = [&](const std::string& text) { return bytes->decode(bytes->encode(text)); };
  const std::string bad = "\xEF\xBF\xBD";
  // Unicode 15, table 3-8 to 3-11.
  BOOST_TEST(decoded("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41") ==
             bad + bad + bad + bad + bad + bad + bad + bad + "A");
  BOOST_TEST(decoded("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41") ==
             bad + bad + bad + bad + bad + bad + bad + bad + "A");
  BOOST_TEST(decoded("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42") ==
             bad + bad + bad + bad + bad + "A" + bad + bad + "B");
  BOOST_TEST(decoded("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41") == bad + bad + bad + bad + "A");
}

BOOST_AUTO_TEST_CASE(sentencepiece_model, *boost::unit_test::precondition(data_is_there)) {
  const auto model = sentencepiece();
  if (!model) return;
  BOOST_TEST(model->vocab_size() == 512);
  BOOST_TEST(model->bos().value() == 1);
  BOOST_TEST(model->eos() == Ids{2});
  BOOST_TEST(model->adds_bos());
  BOOST_TEST(model->piece(403) == "\xE2\x96\x81Once");
  BOOST_TEST(model->id_of("\xE2\x96\x81Once").value() == 403);
  BOOST_TEST(!model->id_of("no such piece").has_value());
  BOOST_TEST(model->piece(512) == "");
  BOOST_TEST(model->encode("Once upon a time") == (Ids{403, 407, 261, 378}));
  BOOST_TEST(model->encode_with_special("<s>Once upon a time</s>") == (Ids{1, 403, 407, 261, 378, 2}));
  BOOST_TEST(model->encode("<s>").size() > 1);
  BOOST_TEST(model->decode(Ids{1, 403, 407, 261, 378, 2, 511, 512, -1}) ==
             "Once upon a time" + model->token_bytes(511, false));
  BOOST_TEST(model->decode(model->encode("\xE4\xBD\xA0 42\n\xFF")) == "\xE4\xBD\xA0 42\n\xEF\xBF\xBD");
}

BOOST_AUTO_TEST_CASE(published_generation_is_decoded, *boost::unit_test::precondition(data_is_there)) {
  const auto model = sentencepiece();
  if (!model) return;
  const std::string json = contents_of(stories() / "expected_generation.json");
  const Ids prompt = numbers_after(json, "\"prompt_ids\"", 0), ids = numbers_after(json, "\"ids\"", 0);
  const std::string text = model->decode(ids);
  BOOST_TEST(text.starts_with("Once upon a time, there was a little girl named Lily."));
  TokenStream stream(*model, prompt);
  std::string streamed = "Once upon a time";
  for (std::size_t i = prompt.size(); i < ids.size(); ++i) streamed += stream.push(ids[i]);
  BOOST_TEST(streamed + stream.finish() == text);
  BOOST_TEST(model->encode(text) == Ids(ids.begin() + 1, ids.end()));
}

BOOST_AUTO_TEST_CASE(broken_models_are_refused, *boost::unit_test::precondition(data_is_there)) {
  if (!sentencepiece()) return;
  const ScratchDirectory folder;
  const auto path = folder / "tokenizer.model";
  const std::string whole = contents_of(stories() / "tokenizer.model");
  for (const std::string& contents :
       {std::string(), std::string("no model"), whole.substr(0, whole.size() / 2)}) {
    put_contents(path, contents);
    BOOST_CHECK_THROW(open_tokenizer(TokenizerFormat::sentencepiece, path), FileError);
  }
  BOOST_CHECK_THROW(open_tokenizer(TokenizerFormat::sentencepiece, folder / "absent.model"), FileError);
  BOOST_CHECK_THROW(open_tokenizer(TokenizerFormat::sentencepiece, folder.path()), FileError);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
