// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>

#include "error_text.hpp"
#include "text/steps/piece_table.hpp"
#include "tokenizer_files.hpp"

namespace kformer::Testing {
namespace {

/// Whether opening fails as FileError with `what` in its text, which also names the file.
void check_refused(const std::string& json, const std::string& what) {
  const std::string text = file_error([&] { open_json(json); });
  BOOST_TEST(text.find(what) != std::string::npos, "expected '" << what << "', got '" << text << "'");
  BOOST_TEST(text.find("tokenizer.json' is not a valid tokenizer: ") != std::string::npos, text);
}

void check_unsupported(const TokenizerJson& json, const std::string& what) {
  std::string text = "no error";
  try {
    open_json(json.text());
  } catch (const NotSupported& error) {
    text = error.what();
  }
  BOOST_TEST(text.find(what) != std::string::npos, "expected '" << what << "', got '" << text << "'");
}

TokenizerJson with_member(const std::string& name, const std::string& member) {
  TokenizerJson json = byte_level({"ab"});
  json.members[name] = member;
  return json;
}

/// A step that splits at a pattern, before bytes become letters.
std::string split_at(const std::string& pattern) {
  return R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":")" + pattern +
         R"("},"behavior":"Isolated"},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_hf_errors)

BOOST_AUTO_TEST_CASE(broken_files_are_refused) {
  check_refused("", "not valid JSON");
  check_refused("[1,2", "not valid JSON");
  check_refused("[]", "it is array, expected an object");
  check_refused("{}", "it has no 'model'");
  check_refused(R"({"model":{"type":"BPE","merges":[]}})", "model has no 'vocab'");
  check_refused(R"({"model":{"type":"BPE","vocab":[],"merges":[]}})",
                "model.vocab is array, expected an object");
  check_refused(R"({"model":{"type":"BPE","vocab":{"a":"0"},"merges":[]}})",
                "the id of token 'a' is not an integer");
  check_refused(R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})",
                "ids must lie in [0, 65538) in a vocabulary of 1");
  check_refused(R"({"model":{"type":"BPE","vocab":{"a":18446744073709551615},"merges":[]}})", "not an integer");
  check_refused(R"({"model":{"type":"BPE","vocab":{"a":0,"b":0},"merges":[]}})",
                "token 'b' with id 0: 'a' has that id already");
  check_refused(R"({"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"]}})",
                "merge 0 of 'a' and 'b': 'ab' is not a token");
  check_refused(R"({"model":{"type":"BPE","vocab":{"a":0,"ax":1},"merges":["a x"]}})", "'x' is not a token");
  for (const char* merge : {"1", R"("ab")", R"("a b c")", R"(["a"])", R"(["a",1])", "null"})
    check_refused(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[)" + std::string(merge) + "]}}",
                  "model.merges[0] is not a pair of tokens");
  check_refused(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":{},"unk_token":"u"}})",
                "model.unk_token 'u' is not a token");
  check_refused(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":{}}})", "model.merges is object");
  check_refused(std::string(100000, '['), "nested deeper than 64 levels");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += R"({"a":)";
  check_refused(deep, "nested deeper than 64 levels");
}

// The table of tokens has a place for each id, and a small file must not make it large.
BOOST_AUTO_TEST_CASE(gaps_between_ids_have_a_limit) {
  const auto with_vocabulary = [](const std::string& vocabulary, const std::string& added = "[]") {
    return R"({"added_tokens":)" + added + R"(,"model":{"type":"BPE","vocab":)" + vocabulary +
           R"(,"merges":[]},"decoder":{"type":"ByteLevel"}})";
  };
  BOOST_TEST(open_json(with_vocabulary(R"({"a":65539,"b":0})"))->vocab_size() == 65540);
  check_refused(with_vocabulary(R"({"a":65540,"b":0})"),
                "token 'a' with id 65540: ids must lie in [0, 65540) in a vocabulary of 2");
  const auto added = [](int id) {
    return R"([{"id":)" + std::to_string(id) + R"(,"content":"c"},{"id":2,"content":"d"}])";
  };
  BOOST_TEST(open_json(with_vocabulary(R"({"a":0,"b":1})", added(65543)))->vocab_size() == 65544);
  check_refused(with_vocabulary(R"({"a":0,"b":1})", added(65544)),
                "token 'c' with id 65544: ids must lie in [0, 65544) in a vocabulary of 4");
  // However many tokens there are.
  Impl::tokenizers::PieceTable table;
  table.expect(4000000);
  BOOST_TEST(file_error([&] {
               table.add("a", 4194304, "made up");
             }).find("[0, 4194304) in a vocabulary of 4000000") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(broken_components_are_refused) {
  check_refused(with_member("added_tokens", R"([{"id":-5,"content":"new"}])").text(), "with id -5");
  check_refused(with_member("added_tokens", R"([{"id":3,"content":"new"}])").text(), "has that id already");
  check_refused(with_member("added_tokens", R"([{"id":3,"content":"ab"}])").text(),
                "added_tokens[0]: 'ab' has id 3 here, but 256 in the vocabulary");
  check_refused(with_member("added_tokens", "{}").text(), "added_tokens is object, expected an array");
  check_refused(with_member("pre_tokenizer", "{}").text(), "pre_tokenizer has no 'type'");
  check_refused(
      with_member("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})").text(),
      "the pattern '(' is not a valid regular expression");
  check_refused(
      with_member("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Other"})").text(),
      "pre_tokenizer.behavior is 'Other'");
  check_refused(with_member("pre_tokenizer", R"({"type":"Sequence","pretokenizers":7})").text(),
                "pre_tokenizer.pretokenizers is number, expected an array");
}

BOOST_AUTO_TEST_CASE(long_added_tokens_are_refused) {
  const auto with_token_of = [](std::size_t bytes) {
    const std::string token = R"([{"id":257,"special":true,"content":")" + std::string(bytes, 'a') + "\"}]";
    return with_member("added_tokens", token).text();
  };
  check_refused(with_token_of(257), "aaa...' has 257 bytes, at most 256 are supported");
  BOOST_TEST(open_json(with_token_of(256))->encode_with_special(std::string(256, 'a')) == Ids{257});
}

BOOST_AUTO_TEST_CASE(normalizers_that_multiply_a_text_are_stopped) {
  const std::string twice = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";
  std::string steps = twice;
  for (int i = 1; i < 36; ++i) steps += "," + twice;
  const auto model =
      open_json(with_member("normalizer", R"({"type":"Sequence","normalizers":[)" + steps + "]}").text());
  BOOST_TEST(error_text<NotSupported>([&] { model->encode("a"); }) ==
             "kformer::Tokenizer::encode: the tokenizer's normalizer expands 1 bytes to at least 131072; the "
             "limit is 64-fold growth; the tokenizer file may be damaged");
}

// While it grows, not when it is whole.
BOOST_AUTO_TEST_CASE(a_normalizer_is_stopped_inside_of_a_step) {
  const std::string step =
      R"({"type":"Replace","pattern":{"String":"a"},"content":")" + std::string(3000, 'b') + "\"}";
  const auto model = open_json(with_member("normalizer", step).text());
  BOOST_TEST(error_text<NotSupported>([&] { model->encode(std::string(100, 'a')); }) ==
             "kformer::Tokenizer::encode: the tokenizer's normalizer expands 100 bytes to at least 66000; the "
             "limit is 64-fold growth; the tokenizer file may be damaged");
}

BOOST_AUTO_TEST_CASE(more_steps_than_any_tokenizer_has_are_refused) {
  const auto times = [](int count, const std::string& step) {
    std::string steps = step;
    for (int i = 1; i < count; ++i) steps += "," + step;
    return steps;
  };
  const auto normalizer = [&](int count) {
    const std::string step = R"({"type":"Replace","pattern":{"String":"b"},"content":"b"})";
    return with_member("normalizer", R"({"type":"Sequence","normalizers":[)" + times(count, step) + "]}");
  };
  const auto splits = [&](int count) {
    const std::string step = R"({"type":"Split","pattern":{"String":"b"},"behavior":"Isolated"})";
    return with_member("pre_tokenizer", R"({"type":"Sequence","pretokenizers":[)" + times(count, step) + "]}");
  };
  check_unsupported(normalizer(101), "normalizer is not supported: it has 101 steps, more than 100");
  check_unsupported(splits(101), "pre_tokenizer is not supported: it has 101 steps, more than 100");
  BOOST_TEST(open_json(normalizer(100).text())->encode("a").size() == 1u);
  BOOST_TEST(open_json(splits(100).text())->encode("a").size() == 1u);
}

// Without a bound the first takes a time that is exponential in the text, the others hours.
BOOST_AUTO_TEST_CASE(patterns_that_take_too_long_are_stopped) {
  const auto refusal = [](const std::string& pattern) {
    const auto model = open_json(with_member("pre_tokenizer", split_at(pattern)).text());
    return error_text<NotSupported>([&] { model->encode(std::string(10'000, 'a')); });
  };
  BOOST_TEST(refusal("(?=(a+)+b)a|a").find("is not supported: the search was aborted: match limit exceeded") !=
             std::string::npos);
  // A look-ahead at each place, whether it is a match or not.
  for (const char* pattern : {"(?=.{0,300}.*b)c|a", "(?=.{0,300}.*b)a"})
    BOOST_TEST(
        refusal(pattern).find("the search was aborted: it takes too long for this text of 10000 bytes; give "
                              "shorter texts, or check the tokenizer file") != std::string::npos,
        pattern);
}

// Searches of long texts go in steps, which must not show: none of these pairs is merged.
BOOST_AUTO_TEST_CASE(matches_are_found_wherever_they_begin) {
  const std::string last_byte = byte_letter(0xA4);
  TokenizerJson json = byte_level({"ab", last_byte + "b"});
  json.merges = R"(["a b",")" + last_byte + R"( b"])";
  json.members["pre_tokenizer"] = split_at("(?<=[a\u00E4])b");
  const auto model = open_json(json.text());
  for (const std::string letter : {"a", "\xC3\xA4"}) {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      text += letter;
      BOOST_TEST(model->encode(text + "b" + letter + "b").size() == text.size() + 2 + letter.size());
    }
  }
}

BOOST_AUTO_TEST_CASE(patterns_that_mean_something_else_to_pcre_are_refused) {
  const auto pattern = [](const std::string& expression) {
    return with_member("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":)" + json_text(expression) +
                                            R"(},"behavior":"Isolated"})");
  };
  for (const auto& [expression, part] : {std::pair{R"(\p{N}{1,3}+)", "{1,3}+"},
                                         {"a{2}?", "{2}?"},
                                         {"a{2}+", "{2}+"},
                                         {"a{,3}", "{,3}"},
                                         {"a(?i)b|c", "(?i)"},
                                         {"(?m)a.b", "(?m)"},
                                         {"(?m:a.b)", "(?m:"},
                                         {"a|(?-i:b)", "(?-i:"}})
    check_unsupported(pattern(expression),
                      "it has '" + std::string(part) + "', which has another meaning elsewhere");
  check_unsupported(pattern(R"(\xC3)"), R"(it has the escape '\x')");
  for (const char* expression : {R"((?i)a|\p{Lu})", R"(a|(?i:b[\p{Lu}c]))", R"((?i:(a)|\P{Lu}))"})
    check_unsupported(pattern(expression),
                      R"(it has '\p{Lu}' without case, which has another meaning elsewhere)");
  for (const char* expression :
       {R"(\x41\x{e9})", R"(\p{N}{1,3})", R"(\p{L}+)", R"(\p{L}++|[^a]?+b)", "a{1,3}?", "a{2}", "a{2,}",
        "[{,3}+]", R"(\{,3\})", "a{", "(?i)a|b", "a|(?i:b)|(?:c)", R"((?i:'s|(a))|\p{Lu}(?i:\p{L}))",
        "(?=a)|(?!b)|(?<=c)|(?<!d)|(?>e)", R"(\x{41}+)"})
    BOOST_CHECK_NO_THROW(open_json(pattern(expression).text()));
}

BOOST_AUTO_TEST_CASE(decoders_in_an_order_that_is_not_known_are_refused) {
  const std::string level = R"({"type":"ByteLevel"})", fuse = R"({"type":"Fuse"})",
                    bytes = R"({"type":"ByteFallback"})";
  const std::string strip = R"({"type":"Strip","content":" ","start":1,"stop":0})";
  const std::string spaces = R"({"type":"Metaspace","replacement":"\u2581"})";
  const auto chain = [](const std::string& first, const std::string& second, const std::string& third = "") {
    return with_member("decoder", R"({"type":"Sequence","decoders":[)" + first + "," + second +
                                      (third.empty() ? "" : "," + third) + "]}");
  };
  check_unsupported(with_member("decoder", R"({"type":"Metaspace","replacement":"_"})"), "it is 'Metaspace'");
  check_unsupported(with_member("decoder", fuse), "it has none of ByteLevel, Metaspace and Replace");
  check_unsupported(chain(spaces, strip), "it is 'Strip'; supported: ");
  check_unsupported(chain(spaces, fuse, bytes), "it is behind 'Fuse', where there are no tokens any more");
  check_unsupported(chain(spaces, spaces), "a step before it spells the tokens already");
  check_unsupported(chain(bytes, level), "it has more steps than ByteLevel");
  check_unsupported(chain(level, fuse, strip), "it has more steps than ByteLevel");
  BOOST_CHECK_NO_THROW(open_json(chain(level, fuse).text()));
}

BOOST_AUTO_TEST_CASE(components_that_are_not_there_are_named) {
  check_unsupported(with_member("normalizer", R"({"type":"Lowercase"})"),
                    "normalizer is not supported: it is 'Lowercase'");
  check_unsupported(
      with_member("pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"Whitespace"}]})"),
      "pre_tokenizer.pretokenizers[0] is not supported: it is 'Whitespace'");
  check_unsupported(with_member("decoder", R"({"type":"WordPiece"})"),
                    "decoder is not supported: it is 'WordPiece'");
  check_unsupported(with_member("post_processor", R"({"type":"BertProcessing"})"),
                    "post_processor is not supported: it is 'BertProcessing'");
  check_unsupported(
      with_member("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Isolated"})"),
      "the escape '\\w'");
  check_unsupported(
      with_member("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"[a&&b]"},"behavior":"Isolated"})"),
      "'&&'");
  check_unsupported(
      with_member("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"[a[bc]]"},"behavior":"Isolated"})"),
      "it has a class within a class");
  TokenizerJson json = byte_level();
  json.model_options = R"(,"continuing_subword_prefix":"##")";
  check_unsupported(json, "model.continuing_subword_prefix is not supported");
  json.model_options = R"(,"dropout":0.1)";
  check_unsupported(json, "model.dropout is not supported");
  BOOST_CHECK_THROW(open_json(R"({"model":{"type":"Unigram","vocab":[]}})"), NotSupported);
}

BOOST_AUTO_TEST_CASE(files_that_cannot_be_read_are_named) {
  const ScratchDirectory folder;
  const std::string text = file_error([&] { open_tokenizer(TokenizerFormat::hf, folder.path()); });
  BOOST_TEST(text.find("cannot read '") == 0);
  BOOST_TEST(text.find("tokenizer.json': No such file or directory") != std::string::npos);
  BOOST_TEST(file_error([] { open_tokenizer(TokenizerFormat::hf, "/dev/null"); }) != "no error");
}

BOOST_AUTO_TEST_CASE(broken_files_beside_are_refused) {
  const std::string json = byte_level().text();
  const auto beside = [&](const std::string& name, const std::string& contents) {
    return file_error([&] { open_json(json, {{name, contents}}); });
  };
  BOOST_TEST(beside("tokenizer_config.json", "[").find("tokenizer_config.json") != std::string::npos);
  BOOST_TEST(
      beside("tokenizer_config.json", R"({"bos_token":3})").find("bos_token is number, expected a text") !=
      std::string::npos);
  BOOST_TEST(beside("generation_config.json", R"({"eos_token_id":["2"]})").find("eos_token_id[0] is string") !=
             std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
