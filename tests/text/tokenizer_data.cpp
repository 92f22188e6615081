// SPDX-License-Identifier: MIT
// The SentencePiece model in the data folder.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <iterator>
#include <sstream>

#include "kformer/core/error.hpp"
#include "kformer/text/tokenizer.hpp"
#include "support/given_data.hpp"
#include "tokenizer_files.hpp"

namespace kformer::Testing {
namespace {

std::filesystem::path stories() { return given_data() / "stories260K"; }

/// The model of SentencePiece, or none where data or library are missing.
std::unique_ptr<const Tokenizer> sentencepiece() {
  try {
    return open_tokenizer(TokenizerFormat::sentencepiece, stories() / "tokenizer.model");
  } catch (const NotSupported& error) {
    BOOST_TEST(std::string(error.what()).find("-DKformer_ENABLE_SENTENCEPIECE=ON") != std::string::npos);
    return nullptr;
  }
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

BOOST_AUTO_TEST_SUITE(tokenizer_data, *boost::unit_test::precondition(Given{"stories260K"}))

BOOST_AUTO_TEST_CASE(sentencepiece_model) {
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

BOOST_AUTO_TEST_CASE(published_generation_is_decoded) {
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

BOOST_AUTO_TEST_CASE(broken_models_are_refused) {
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
