// SPDX-License-Identifier: MIT
// tokenizer.json: merges by hand, the steps before and after them, and refusals.
#include <boost/test/unit_test.hpp>
#include <random>

#include "error_text.hpp"
#include "tokenizer_files.hpp"

namespace kformer::Testing {
namespace {

const std::string space = "\xE2\x96\x81";

/// The vocabulary of Llama 2 in small: bytes where there are no characters.
TokenizerJson llama2(const std::string& options) {
  TokenizerJson json{
      {"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", space, "a", "b", space + "a", "ab", space + "ab"},
      R"([["a","b"],[")" + space + R"(","a"],[")" + space + R"(","ab"]])",
      R"(,"unk_token":"<unk>","byte_fallback":true)" + options,
      {}};
  json.members["normalizer"] = R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":")" + space +
                               R"("},{"type":"Replace","pattern":{"String":" "},"content":")" + space +
                               R"("}]})";
  json.members["decoder"] =
      R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":")" + space +
      R"("},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";
  json.members["added_tokens"] = R"([{"id":1,"content":"<s>","special":true,"normalized":false}])";
  json.members["post_processor"] =
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],)"
      R"("special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}})";
  return json;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tokenizer_hf)

BOOST_AUTO_TEST_CASE(best_merges_go_first) {
  // 256: bc, 257: ab, 258: abc, 259: aa
  for (const char* merges :
       {R"(["b c","a b","a bc","a a"])", R"([["b","c"],["a","b"],["a","bc"],["a","a"]])"}) {
    TokenizerJson json = byte_level({"bc", "ab", "abc", "aa"});
    json.merges = merges;
    const auto hf = open_json(json.text());
    BOOST_TEST(hf->encode("abc") == Ids{258});  // bc, then a with it
    BOOST_TEST(hf->encode("abab") == (Ids{257, 257}));
    BOOST_TEST(hf->encode("aaa") == (Ids{259, 'a'}));   // the leftmost of equal pairs
    BOOST_TEST(hf->encode("aabc") == (Ids{'a', 258}));  // bc, then a bc; aa comes too late
    BOOST_TEST(hf->encode("ab bc") == (Ids{257, ' ', 256}));
    BOOST_TEST(hf->encode("").empty());
    BOOST_TEST(hf->decode(hf->encode("aabc ab")) == "aabc ab");
    BOOST_TEST(hf->vocab_size() == 260);
    BOOST_TEST(!hf->adds_bos());
    BOOST_TEST(!hf->bos().has_value());
  }
}

// As in the library that these files are from, and unlike GGUF.
BOOST_AUTO_TEST_CASE(of_two_equal_merges_the_last_counts) {
  TokenizerJson json = byte_level({"ab", "bc"});
  json.merges = R"(["a b","b c","a b"])";
  BOOST_TEST(open_json(json.text())->encode("abc") == (Ids{'a', 257}));
}

BOOST_AUTO_TEST_CASE(words_that_are_tokens_may_be_left_alone) {
  TokenizerJson json = byte_level({"ab", "abc"});
  json.merges = R"(["a b"])";
  BOOST_TEST(open_json(json.text())->encode("abc") == (Ids{256, 'c'}));
  json.model_options = R"(,"ignore_merges":true)";
  BOOST_TEST(open_json(json.text())->encode("abc") == Ids{257});
}

// Else a special token could be spelled out in plain text.
BOOST_AUTO_TEST_CASE(words_consist_of_the_tokens_of_the_model) {
  TokenizerJson words = byte_level();
  words.model_options = R"(,"ignore_merges":true)";
  words.members["added_tokens"] = R"([{"id":256,"content":"stop","special":true}])";
  const auto hf = open_json(words.text());
  BOOST_TEST(hf->encode("stop") == (Ids{'s', 't', 'o', 'p'}));
  BOOST_TEST(hf->encode_with_special("stop") == Ids{256});
  TokenizerJson characters = llama2("");
  characters.members["added_tokens"] = "[{\"id\":11,\"content\":\"\u00E9\",\"special\":true}]";
  BOOST_TEST(open_json(characters.text())->encode("a\u00E9") == (Ids{8, 3, 4}));
}

BOOST_AUTO_TEST_CASE(patterns_split_before_merging) {
  // 256: 12, 257: 123, 258: 1234; then the letter of the space with a digit, a newline with one.
  TokenizerJson json = byte_level({"12", "123", "1234", byte_letter(' ') + "1", byte_letter('\n') + "1"});
  json.merges = R"([["1","2"],["12","3"],["123","4"],[")" + byte_letter(' ') + R"(","1"],[")" +
                byte_letter('\n') + R"(","1"]])";
  const auto with = [&](const std::string& steps) {
    json.members["pre_tokenizer"] = R"({"type":"Sequence","pretokenizers":[)" + steps +
                                    R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})";
    return open_json(json.text());
  };
  const auto split = [&](const std::string& pattern, const std::string& behaviour, bool invert = false) {
    return with(R"({"type":"Split","pattern":{"Regex":)" + json_text(pattern) + R"(},"behavior":")" +
                behaviour + R"(","invert":)" + (invert ? "true" : "false") + "},");
  };
  BOOST_TEST(with("")->encode("1234 1\n1") == (Ids{258, 259, 260}));
  BOOST_TEST(split(R"(\p{N}{1,3})", "Isolated")->encode("1234") == (Ids{257, '4'}));
  BOOST_TEST(split(R"(\s)", "MergedWithNext")->encode("1234 1") == (Ids{258, 259}));
  BOOST_TEST(split(R"(\s)", "MergedWithPrevious")->encode("1234 1") == (Ids{258, ' ', '1'}));
  BOOST_TEST(split(R"(\s)", "Removed")->encode("1234 1") == (Ids{258, '1'}));
  BOOST_TEST(split(R"(\s)", "Removed", true)->encode("1234 1") == Ids{' '});
  BOOST_TEST(split("2", "MergedWithPrevious")->encode("1234") == (Ids{256, '3', '4'}));
  BOOST_TEST(split("[23]", "MergedWithPrevious")->encode("1234") == (Ids{256, '3', '4'}));
  // U+180E is white space to PCRE2, but not to Unicode.
  BOOST_TEST(split(R"(\s)", "Removed")->encode("1\xE1\xA0\x8E\x32") == (Ids{'1', 0xE1, 0xA0, 0x8E, '2'}));
  // A script has no more than its characters: U+3002 is used with Han, but common to many scripts.
  BOOST_TEST(split(R"(\p{Han})", "Removed")->encode("1\u4F60\u3002").size() == 4u);
  BOOST_TEST(split(R"([^\p{^Han}]+)", "Removed")->encode("1\u4F60\u3002").size() == 4u);
  BOOST_TEST(split("[12]", "Contiguous")->encode("1234") == (Ids{256, '3', '4'}));
  BOOST_TEST(with(R"({"type":"Digits","individual_digits":true},)")->encode("12 1") ==
             (Ids{'1', '2', ' ', '1'}));
  BOOST_TEST(with(R"({"type":"Digits","individual_digits":false},)")->encode("12 1") == (Ids{256, ' ', '1'}));
  // A pattern that matches nothing at all still makes progress.
  BOOST_TEST(split("x*", "Isolated")->decode(split("x*", "Isolated")->encode("1x\xC3\xA9 2")) ==
             "1x\xC3\xA9 2");
}

BOOST_AUTO_TEST_CASE(byte_level_puts_a_space_before_the_text_and_splits_it_unless_it_says_otherwise) {
  TokenizerJson json = byte_level({"a" + byte_letter(' ')});
  json.merges = R"([["a",")" + byte_letter(' ') + R"("]])";
  const auto with = [&](const std::string& options) {
    json.members["pre_tokenizer"] = R"({"type":"ByteLevel")" + options + "}";
    return open_json(json.text());
  };
  BOOST_TEST(with("")->encode("a b") == (Ids{' ', 'a', ' ', 'b'}));
  BOOST_TEST(with("")->encode(" a b") == (Ids{' ', 'a', ' ', 'b'}));
  BOOST_TEST(with(R"(,"add_prefix_space":false)")->encode("a b") == (Ids{'a', ' ', 'b'}));
  BOOST_TEST(with(R"(,"use_regex":false)")->encode("a b") == (Ids{' ', 256, 'b'}));
}

BOOST_AUTO_TEST_CASE(a_space_begins_a_word_unless_metaspace_says_otherwise) {
  TokenizerJson json{{"<unk>", space, "a", space + "a", "a" + space},
                     R"([["a",")" + space + R"("],[")" + space + R"(","a"]])",
                     R"(,"unk_token":"<unk>")",
                     {}};
  for (const auto& [option, ids] : {std::pair{"", Ids{3, 3}}, {R"(,"split":false)", Ids{1, 4, 2}}}) {
    json.members["pre_tokenizer"] = R"({"type":"Metaspace","replacement":")" + space + "\"" + option + "}";
    BOOST_TEST(open_json(json.text())->encode("a a") == ids, option);
  }
}

BOOST_AUTO_TEST_CASE(bytes_stand_in_for_unknown_characters) {
  const auto hf = open_json(llama2("").text());
  BOOST_TEST(hf->adds_bos());
  BOOST_TEST(hf->bos().value() == 1);
  BOOST_TEST(hf->encode("ab a") == (Ids{10, 8}));
  BOOST_TEST(hf->encode(" a") == (Ids{5, 8}));
  BOOST_TEST(hf->encode("a\xC3\xA9") == (Ids{8, 3, 4}));
  BOOST_TEST(hf->encode("a\xC3\xA8") == (Ids{8, 0}));  // of which one byte is not there
  BOOST_TEST(hf->encode("").empty());
  BOOST_TEST(hf->encode("axx") == (Ids{8, 0, 0}));
  BOOST_TEST(open_json(llama2(R"(,"fuse_unk":true)").text())->encode("axx") == (Ids{8, 0}));
  BOOST_TEST(hf->decode(Ids{1, 10, 8}) == "ab a");
  BOOST_TEST(hf->decode(Ids{5, 8, 3, 4}) == " a\xC3\xA9");
  BOOST_TEST(hf->decode(Ids{3}) == "\xEF\xBF\xBD");
  BOOST_TEST(hf->encode_with_special("<s>a") == (Ids{1, 8}));
}

// Its first space is text, and bytes of a character that the prompt began are none.
BOOST_AUTO_TEST_CASE(a_stream_goes_on_behind_its_prompt) {
  const auto hf = open_json(llama2("").text());
  BOOST_TEST(TokenStream(*hf).push(8) == "a");
  BOOST_TEST(TokenStream(*hf, Ids{1}).push(8) == "a");
  BOOST_TEST(TokenStream(*hf, Ids{1, 8}).push(8) == " a");
  BOOST_TEST(TokenStream(*hf, Ids{5}).push(8) == " a");
  TokenStream cut(*hf, Ids{8, 3});
  BOOST_TEST(cut.push(4) == "\xEF\xBF\xBD");
  BOOST_TEST(cut.finish() == "");
}

// A character that is spelled like the unknown token is not unknown.
BOOST_AUTO_TEST_CASE(unknown_characters_are_fused_with_each_other_alone) {
  const TokenizerJson json{{"?", "a", "xy"}, "[]", R"(,"unk_token":"?","fuse_unk":true)", {}};
  BOOST_TEST(open_json(json.text())->encode("?xya") == (Ids{0, 0, 1}));
  BOOST_TEST(open_json(json.text())->encode("xyza") == (Ids{0, 1}));  // though xy is a token
}

BOOST_AUTO_TEST_CASE(special_tokens_are_found_before_the_text_is_normalised) {
  TokenizerJson json = byte_level({"<|X|>", "Y"});
  json.members["normalizer"] = R"({"type":"Replace","pattern":{"String":"X"},"content":"Y"})";
  json.members["added_tokens"] =
      R"([{"id":256,"content":"<|X|>","special":true},{"id":257,"content":"Y","special":false}])";
  const auto hf = open_json(json.text());
  BOOST_TEST(hf->encode_with_special("<|X|>X") == (Ids{256, 257}));
  BOOST_TEST(hf->encode_with_special("<|Y|>") == (Ids{'<', '|', 257, '|', '>'}));
}

BOOST_AUTO_TEST_CASE(added_tokens_are_normalised_like_the_text_in_which_they_are_found) {
  TokenizerJson json = llama2("");
  json.members["added_tokens"] = R"([{"id":12,"content":"my tok","special":false,"normalized":true}])";
  const auto hf = open_json(json.text());
  BOOST_TEST(hf->encode("my tok") == Ids{12});
  BOOST_TEST(hf->encode("ab my tok a") == (Ids{10, 12, 8}));
  BOOST_TEST(hf->piece(12) == "my tok");
  // What is not normalised is found as the file spells it.
  json.members["added_tokens"] = R"([{"id":12,"content":"my tok","special":false,"normalized":false}])";
  BOOST_TEST(open_json(json.text())->encode("abmy tok") == (Ids{10, 12}));
}

BOOST_AUTO_TEST_CASE(a_space_is_put_before_the_text_as_the_scheme_says) {
  // Older files have another key for it.
  const std::map<std::string, Ids> expected{
      {R"("prepend_scheme":"always")", {3, 4, 3}}, {R"("prepend_scheme":"first")", {3, 4, 2}},
      {R"("prepend_scheme":"never")", {2, 4, 2}},  {R"("add_prefix_space":true)", {3, 4, 3}},
      {R"("add_prefix_space":false)", {2, 4, 2}},  {R"("split":true)", {3, 4, 3}}};
  for (const auto& [scheme, ids] : expected) {
    TokenizerJson json{{"<unk>", space, "a", space + "a", "<s>"},
                       R"([[")" + space + R"(","a"]])",
                       R"(,"unk_token":"<unk>")",
                       {}};
    json.members["pre_tokenizer"] = R"({"type":"Metaspace","replacement":")" + space + R"(",)" + scheme + "}";
    json.members["decoder"] = json.members["pre_tokenizer"];
    json.members["added_tokens"] = R"([{"id":4,"content":"<s>","special":true}])";
    const auto hf = open_json(json.text());
    BOOST_TEST(hf->encode_with_special("a<s>a") == ids, scheme);
    BOOST_TEST(hf->decode(Ids{3}) == (ids.front() == 2 ? " a" : "a"), scheme);
  }
}

BOOST_AUTO_TEST_CASE(added_tokens_are_found_as_they_are_spelled) {
  TokenizerJson json = byte_level({"<|x|>", "<|x|>y", "word", "rr"});
  json.members["added_tokens"] =
      R"([{"id":256,"content":"<|x|>","special":true},{"id":257,"content":"<|x|>y","special":false,"normalized":false},)"
      R"({"id":258,"content":"word","special":false,"single_word":true},)"
      R"({"id":259,"content":"rr","special":false,"lstrip":true,"rstrip":true},)"
      R"({"id":300,"content":"<|new|>","special":true}])";
  const auto hf = open_json(json.text());
  BOOST_TEST(hf->vocab_size() == 301);
  BOOST_TEST(hf->encode_with_special("<|x|>z") == (Ids{256, 'z'}));
  BOOST_TEST(hf->encode("<|x|>z") == (Ids{'<', '|', 'x', '|', '>', 'z'}));
  BOOST_TEST(hf->encode_with_special("<|x|>y") == Ids{257});  // the longest
  BOOST_TEST(hf->encode("<|x|>y") == Ids{257});
  BOOST_TEST(hf->encode("word swords word!") == (Ids{258, ' ', 's', 'w', 'o', 'r', 'd', 's', ' ', 258, '!'}));
  BOOST_TEST(hf->encode("words") == (Ids{'w', 'o', 'r', 'd', 's'}));
  BOOST_TEST(hf->encode("a  rr\nb") == (Ids{'a', 259, 'b'}));
  BOOST_TEST(hf->encode("rr ") == Ids{259});
  BOOST_TEST(hf->encode_with_special("<|new|>") == Ids{300});
  BOOST_TEST(hf->decode(Ids{256, 257, 300, 290, 259}) == "<|x|>yrr");
  BOOST_TEST(hf->piece(290) == "");
}

// What each chain of decoders makes of tokens, in the library that these files are from.
BOOST_AUTO_TEST_CASE(decoders_work_in_their_order) {
  const TokenizerJson vocabulary{{space + space + "a" + space, space, "b", "<0x41>", "<0x20>"},
                                 "[]",
                                 "",
                                 {{"added_tokens", R"([{"id":5,"content":"p)" + space +
                                                       R"(q","special":false},)"
                                                       R"({"id":6,"content":" z","special":false}])"}}};
  const auto decoded = [&](const std::string& steps, const Ids& ids) {
    TokenizerJson json = vocabulary;
    json.members["decoder"] = R"({"type":"Sequence","decoders":[)" + steps + "]}";
    return open_json(json.text())->decode(ids);
  };
  const std::string replace = R"({"type":"Replace","pattern":{"String":")" + space + R"("},"content":" "})";
  const std::string bytes = R"(,{"type":"ByteFallback"})", fuse = R"(,{"type":"Fuse"})";
  const std::string strip = R"(,{"type":"Strip","content":" ","start":1,"stop":0})";
  const std::string metaspace =
      R"({"type":"Metaspace","replacement":")" + space + R"(","prepend_scheme":"first"})";
  BOOST_TEST(decoded(replace, {0, 3, 5}) == "  a <0x41>p q");
  BOOST_TEST(decoded(replace + bytes + fuse, {0, 3, 5}) == "  a Ap q");
  // One space of the text, whatever token it is from.
  BOOST_TEST(decoded(replace + bytes + fuse + strip, {0, 0}) == " a   a ");
  BOOST_TEST(decoded(replace + bytes + fuse + strip, {4, 2, 4}) == "b ");
  BOOST_TEST(decoded(replace + bytes + fuse + strip, {6, 6}) == "z z");
  BOOST_TEST(decoded(replace + bytes + fuse + strip, {1, 1, 2}) == " b");
  // All that the first token spells.
  BOOST_TEST(decoded(metaspace, {0, 0}) == "a  a ");
  BOOST_TEST(decoded(metaspace, {1, 1, 2, 3}) == " b<0x41>");
  BOOST_TEST(decoded(metaspace, {6}) == " z");
}

// As in the library that these files are from: Alphabetic, marks, decimal digits, connectors and joiners.
BOOST_AUTO_TEST_CASE(single_words_end_where_no_character_of_a_word_follows) {
  TokenizerJson json = byte_level({"xx"});
  json.members["added_tokens"] = R"([{"id":256,"content":"xx","special":false,"single_word":true}])";
  const auto hf = open_json(json.text());
  const auto ends_it = [&](const std::string& next) { return hf->encode("xx" + next).front() == 256; };
  for (const char* next : {"\u00B2", "\u200B", "-", " ", "\u2460"}) BOOST_TEST(ends_it(next), next);
  for (const char* next : {"\u24B6", "\u200D", "\u0300", "\u0663", "_", "\u2167"})
    BOOST_TEST(!ends_it(next), next);
}

BOOST_AUTO_TEST_CASE(any_text_comes_back) {
  const auto hf = open_json(byte_level().text());
  std::mt19937 random(20260603);
  for (int round = 0; round < 1000; ++round) {
    const std::string text = random_text(random);
    BOOST_REQUIRE(hf->decode(hf->encode(text)) == text);
  }
  BOOST_TEST(hf->decode(hf->encode("a\xFFz\xE4\xBD")) == "a\xEF\xBF\xBDz\xEF\xBF\xBD");
}

BOOST_AUTO_TEST_CASE(normal_form_or_a_sentence) {
  TokenizerJson json = byte_level();
  json.members["normalizer"] = R"({"type":"NFC"})";
  const auto hf = open_json(json.text());
  BOOST_TEST(hf->encode("caf\xC3\xA9") == (Ids{'c', 'a', 'f', 0xC3, 0xA9}));
  try {
    BOOST_TEST(hf->encode("cafe\xCC\x81") == (Ids{'c', 'a', 'f', 0xC3, 0xA9}));
  } catch (const NotSupported& error) {  // a build without ICU
    BOOST_TEST(std::string(error.what()).find("-DKformer_ENABLE_ICU=ON") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(files_beside_say_where_a_text_ends) {
  const std::string json = byte_level({"<s>", "</s>", "<|eot|>"}).text();
  const auto hf = open_json(
      json,
      {{"tokenizer_config.json",
        R"({"bos_token":{"content":"<s>"},"eos_token":"</s>","chat_template":[{"name":"x","template":"X"},)"
        R"({"name":"default","template":"D"}]})"},
       {"generation_config.json", R"({"eos_token_id":[257,258,999]})"}});
  BOOST_TEST(hf->bos().value() == 256);
  BOOST_TEST(!hf->adds_bos());
  BOOST_TEST(hf->eos() == (Ids{257, 258}));
  BOOST_TEST(hf->chat_template() == "D");
  BOOST_TEST(open_json(json, {{"chat_template.jinja", "J"}})->chat_template() == "J");
  BOOST_TEST(open_json(json, {{"tokenizer_config.json", R"({"chat_template":"T"})"}})->chat_template() == "T");
  BOOST_TEST(
      open_json(json, {{"tokenizer_config.json", R"({"chat_template":"T"})"}, {"chat_template.jinja", "J"}})
          ->chat_template() == "J");
  BOOST_TEST(open_json(json, {{"generation_config.json", R"({"eos_token_id":257})"}})->eos() == Ids{257});
}

// As in transformers: a template decides, unless the class of the tokenizer writes a template of its own.
BOOST_AUTO_TEST_CASE(files_beside_say_whether_a_text_has_a_beginning) {
  const std::string plain = byte_level({"<s>"}).text(), with_template = llama2("").text();
  const auto adds = [](const std::string& json, const std::string& more) {
    return open_json(json, {{"tokenizer_config.json", R"({"bos_token":"<s>")" + more + "}"}})->adds_bos();
  };
  const std::string yes = R"(,"add_bos_token":true)", no = R"(,"add_bos_token":false)";
  BOOST_TEST(adds(plain, yes));
  BOOST_TEST(!adds(plain, no));
  BOOST_TEST(!adds(plain, ""));
  BOOST_TEST(adds(with_template, ""));
  BOOST_TEST(adds(with_template, no));
  for (const std::string name : {"LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizerFast"}) {
    const std::string type = R"(,"tokenizer_class":")" + name + "\"";
    BOOST_TEST(!adds(with_template, no + type));
    BOOST_TEST(adds(with_template, yes + type));
    BOOST_TEST(adds(with_template, type));
    BOOST_TEST(adds(plain, yes + type));
  }
  // Without the token there is nothing to add.
  BOOST_TEST(!open_json(plain, {{"tokenizer_config.json", R"({"add_bos_token":true})"}})->adds_bos());
}

BOOST_AUTO_TEST_CASE(long_texts_take_no_square_time) {
  TokenizerJson json = byte_level({"aa", "aaaa"});
  json.merges = R"(["a a","aa aa"])";
  const auto hf = open_json(json.text());
  BOOST_TEST(hf->encode(std::string(1 << 18, 'a')).size() == (1u << 16));
  BOOST_TEST(hf->encode(std::string(1 << 18, ' ')).size() == (1u << 18));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
