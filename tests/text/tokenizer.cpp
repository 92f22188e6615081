// SPDX-License-Identifier: MIT
// Tokenizers: bytes and growing text.
#include "kformer/text/tokenizer.hpp"

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <new>
#include <random>
#include <stdexcept>

#include "error_text.hpp"
#include "support/skipped.hpp"
#include "text/tokenizer/library_errors.hpp"
#include "tokenizer_files.hpp"

namespace kformer::Testing {
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

/// A field of Protocol Buffers with bytes.
std::string field(int number, const std::string& bytes) {
  std::string text(1, static_cast<char>(number << 3 | 2));
  std::size_t size = bytes.size();
  for (; size >= 0x80; size >>= 7) text += static_cast<char>((size & 0x7F) | 0x80);
  return text + static_cast<char>(size) + bytes;
}

/// A piece of a model: its text, type 1 (normal), 2 (unknown) or 3 (control), and score.
std::string piece(const std::string& text, char type, float score = 0) {
  std::string number(sizeof score, '\0');
  std::memcpy(number.data(), &score, sizeof score);
  return field(1, field(1, text) + "\x15" + number + "\x18" + type);
}

const std::string small_model = piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) + piece("a", 1);

/// The normalizer of a model, with a tree of 1024 units that are all `unit`.
std::string normalizer(std::uint32_t unit, const std::string& texts) {
  std::string map("\0\x10\0\0", 4);
  for (int i = 0; i < 1024; ++i) map.append(reinterpret_cast<const char*>(&unit), 4);
  return field(3, field(1, "x") + field(2, map + texts));
}

BOOST_AUTO_TEST_CASE(hostile_sentencepiece_models_are_refused) {
  const ScratchDirectory folder;
  const auto path = folder / "tokenizer.model";
  const auto refusal = [&](const std::string& contents) -> std::string {
    put_contents(path, contents);
    try {
      open_tokenizer(TokenizerFormat::sentencepiece, path)->encode("a b a");
    } catch (const FileError& error) {
      return error.what();
    } catch (const NotSupported&) {
      return "no SentencePiece";
    }
    return "no error";
  };
  const std::string sound = refusal(small_model);
  if (sound == "no SentencePiece") return say_skipped_in_part("this build has no SentencePiece");
  BOOST_TEST(sound == "no error");
  BOOST_TEST(refusal(small_model + normalizer(0, std::string("x\0", 2))) == "no error");
  const std::string begin = "'" + path.string() + "' is not a valid tokenizer: ";
  BOOST_TEST(refusal(small_model + piece(std::string(300'000, 'b'), 1)) ==
             begin + "the piece '" + std::string(60, 'b') +
                 "...' has 300000 bytes, at most 4096 are supported");
  BOOST_TEST(refusal(small_model + piece(std::string("b\0c", 3), 1)) == begin + "a piece contains a zero byte");
  const std::string damaged = begin + "its normalizer is damaged: ";
  BOOST_TEST(refusal(small_model + normalizer(0x7FFFFC00, std::string("x\0", 2))) ==
             damaged + "its search tree points outside of itself");
  BOOST_TEST(refusal(small_model + normalizer(0x00000100 + 'a', std::string("x\0", 2))) ==
             damaged + "a text lies outside of it");
  BOOST_TEST(refusal(small_model + normalizer(0, "x")) == damaged + "its last text has no end");
  BOOST_TEST(refusal(small_model + field(3, field(2, "abcdef"))) == damaged + "its length is wrong");
  // A field's number in five bytes, of which the library takes 32 bits.
  BOOST_TEST(refusal(small_model + "\x9A\x80\x80\x80\x10" + normalizer(0, "x").substr(1)) ==
             begin + "it is not a SentencePiece model: the number of a field has more than 32 bits");
  for (std::size_t size = 1; size < small_model.size(); ++size) refusal(small_model.substr(0, size));
  BOOST_TEST(refusal(small_model.substr(0, small_model.size() - 1)) ==
             begin + "it is not a SentencePiece model, or is truncated");
}

// Unigrams: <unk>, <s>, </s>, a, and three that begin with the space.
BOOST_AUTO_TEST_CASE(sentencepiece_models_and_the_files_beside_them) {
  const ScratchDirectory folder;
  const std::string space = "\xE2\x96\x81";
  put_contents(folder / "tokenizer.model",
               small_model + piece(space, 1, -2) + piece(space + "a", 1, -1) + piece("ab", 1, -5));
  const auto open = [&] { return open_tokenizer(TokenizerFormat::automatic, folder / "tokenizer.model"); };
  std::unique_ptr<const Tokenizer> model;
  try {
    model = open();
  } catch (const NotSupported&) {
    return say_skipped_in_part("this build has no SentencePiece");
  }
  BOOST_TEST(model->vocab_size() == 7);
  BOOST_TEST((model->bos().value() == 1 && model->adds_bos()));
  BOOST_TEST(model->eos() == Ids{2});
  BOOST_TEST(model->encode("a") == Ids{5});
  BOOST_TEST(model->encode("<s>").front() != 1);
  BOOST_TEST(model->encode_with_special("<s>a</s>") == (Ids{1, 5, 2}));
  BOOST_TEST(model->decode(Ids{1, 5, 5, 2}) == "a a");
  BOOST_TEST(TokenStream(*model, Ids{1, 5}).push(5) == " a");
  BOOST_TEST(model->decode(Ids{0, 7, -1}) == " \xE2\x81\x87 ");
  BOOST_TEST((model->piece(5) == space + "a" && model->piece(7) == ""));
  BOOST_TEST((model->id_of("ab").value() == 6 && !model->id_of("b").has_value()));
  const std::vector<ChatPiece> chat{{"<s>", true}, {"a</s>", false}};
  const Ids ids = model->encode_chat(chat);
  BOOST_TEST((ids.front() == 1 && ids.back() != 2));
  put_contents(folder / "tokenizer_config.json",
               R"({"add_bos_token":false,"eos_token":"ab","chat_template":"T"})");
  put_contents(folder / "generation_config.json", R"({"eos_token_id":[3,2,99]})");
  const auto beside = open();
  BOOST_TEST(!beside->adds_bos());
  BOOST_TEST(beside->eos() == (Ids{2, 6, 3}));
  BOOST_TEST(beside->chat_template() == "T");
  BOOST_TEST(beside->fingerprint() == model->fingerprint());
  put_contents(folder / "tokenizer.model",
               small_model + piece(space, 1, -2) + piece(space + "a", 1, -1) + piece("ab", 1, -6));
  BOOST_TEST(open()->fingerprint() != model->fingerprint());
}

BOOST_AUTO_TEST_CASE(errors_of_libraries_are_file_errors) {
  const auto with = [](auto error) {
    return [=] { return Impl::tokenizers::opened("a.model", [&]() -> int { throw error; }); };
  };
  BOOST_TEST(file_error(with(std::runtime_error("Darts: failed"))) ==
             "'a.model' is not a valid tokenizer: Darts: failed");
  BOOST_TEST(error_text<NotSupported>(with(NotSupported("no"))) == "no");
  BOOST_CHECK_THROW(with(std::bad_alloc())(), std::bad_alloc);
}

// As the library decodes them, though no piece of the model is a letter behind a space.
BOOST_AUTO_TEST_CASE(pieces_of_sentencepiece_lose_the_space_of_the_model) {
  const std::string space = "\u2581";
  const std::string pieces = small_model + piece(space + space + "b", 1) + piece("<0x41>", 1) + piece(space, 1);
  const auto decoded = [&](bool adds_space, const Ids& ids) -> std::string {
    const ScratchDirectory folder;
    // add_dummy_prefix and remove_extra_whitespaces
    const std::string rules =
        field(1, "identity") + "\x18" + (adds_space ? '\1' : '\0') + std::string("\x20\0", 2);
    put_contents(folder / "tokenizer.model", pieces + field(3, rules));
    try {
      return open_tokenizer(TokenizerFormat::sentencepiece, folder / "tokenizer.model")->decode(ids);
    } catch (const NotSupported&) {
      return "no SentencePiece";
    }
  };
  if (decoded(true, {}) == "no SentencePiece") return say_skipped_in_part("this build has no SentencePiece");
  BOOST_TEST(decoded(true, {4, 4, 6, 3}) == " b  b a");
  BOOST_TEST(decoded(true, {6, 3, 6}) == "a ");
  BOOST_TEST(decoded(false, {4, 3}) == "  ba");
  BOOST_TEST(decoded(true, {5, 3}) == "<0x41>a");  // which is no byte, as its type says
}

BOOST_AUTO_TEST_CASE(loops_of_links_are_file_errors) {
  const ScratchDirectory folder;
  std::filesystem::create_symlink(folder / "loop", folder / "loop");
  for (const auto format : {TokenizerFormat::automatic, TokenizerFormat::hf, TokenizerFormat::sentencepiece})
    BOOST_TEST(error_text([&] { open_tokenizer(format, folder / "loop"); }).find("symbolic links") !=
               std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
