// SPDX-License-Identifier: MIT
// Pairs of completions: which tokens are learnt, what is cut and left out, and what is refused.
#include "kformer/data/preference_dataset.hpp"

#include <boost/test/unit_test.hpp>

#include "data/chat_tokenizers.hpp"
#include "line_case.hpp"

namespace kformer::Testing {
namespace {

const std::string user = R"({"role":"user","content":"Hi"})",
                  user_of_sharegpt = R"({"from":"human","value":"Hi"})";

std::string said(const std::string& text, const std::string& role = "assistant") {
  return R"({"role":")" + role + R"(","content":")" + text + "\"}";
}

/// A line with these members, in JSON.
std::string line_of(const std::string& prompt, const std::string& chosen, const std::string& rejected) {
  return (prompt.empty() ? "{" : R"({"prompt":)" + prompt + ",") + R"("chosen":)" + chosen + R"(,"rejected":)" +
         rejected + "}\n";
}

std::string line_error(const std::string& contents) { return Pairs(contents).error(*chat_tokenizer()); }

}  // namespace

BOOST_AUTO_TEST_SUITE(preference_dataset)

BOOST_AUTO_TEST_CASE(texts_are_written_as_they_are) {
  const std::string line = line_of(R"("2+2=")", R"("4")", R"("<s> 5")");
  BOOST_TEST(marked_line(line, *bytes()) == "<s>2+2=[4</s>] | <s>2+2=[<s> 5</s>]");
  // The bytes of "<s>" were said by someone: they are not the token.
  BOOST_TEST(std::ranges::count(pair_at(Pairs(line).open(*bytes()), 0).rejected.ids, bos) == 1);
  // Without an end-of-text token there is none.
  BOOST_TEST(marked_line(line, *chat_tokenizer()) == "2+2=[4] | 2+2=[<s> 5]");
}

BOOST_AUTO_TEST_CASE(messages_are_written_by_the_template) {
  const std::string expected =
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[Yo<|im_end|>] | "
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[No.<|im_end|>]";
  const auto tokenizer = chat_tokenizer();
  const std::string yo = said("Yo"), no = said("No."), both = "[" + user + ",";
  for (const std::string& line :
       {line_of("[" + user + "]", "[" + yo + "]", "[" + no + "]"), line_of(user, yo, no),
        line_of("", both + yo + "]", both + no + "]"), line_of(R"("Hi")", both + yo + "]", both + no + "]"),
        line_of(R"("Hi")", "[" + yo + "]", no),
        line_of("[" + user_of_sharegpt + "]", R"({"from":"gpt","value":"Yo"})", no),
        line_of("", "[" + user_of_sharegpt + R"(,{"from":"gpt","value":"Yo"}])", both + no + "]")})
    BOOST_TEST(marked_line(line, *tokenizer) == expected);
}

BOOST_AUTO_TEST_CASE(other_styles) {
  Pairs pairs(line_of("[" + said("Be.", "system") + "," + user + "]", said("Yo"), said("No.")));
  const auto tokenizer = spaced_tokenizer();
  pairs.options.chat->style = ChatStyle::llama2;
  BOOST_TEST(marked_pair(pair_at(pairs.open(*tokenizer), 0), *tokenizer) ==
             "<s> [INST] <<SYS>>\nBe.\n<</SYS>>\n\nHi [/INST][ Yo </s>] | "
             "<s> [INST] <<SYS>>\nBe.\n<</SYS>>\n\nHi [/INST][ No. </s>]");
  pairs.options.chat->style = ChatStyle::mistral;
  BOOST_TEST(marked(pair_at(pairs.open(*tokenizer), 0).chosen, *tokenizer) ==
             "<s> [INST] Be.\n\nHi [/INST][Yo</s>]");
}

BOOST_AUTO_TEST_CASE(answers_in_the_prompt_are_not_learnt) {
  const std::string more = "," + said("ab") + "," + said("So?", "user") + ",";
  const std::string line =
      line_of("", "[" + user + more + said("Yo") + "," + said("!", "user") + "," + said("ab") + "]",
              "[" + user + more + said("No.") + "]");
  const std::string prompt =
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nab<|im_end|>\n<|im_start|>user\nSo?<|im_end|>\n"
      "<|im_start|>assistant\n";
  const auto tokenizer = chat_tokenizer();
  const auto pair = pair_at(Pairs(line).open(*tokenizer), 0);
  // What the user says in the middle of a completion is not learnt.
  BOOST_TEST(marked_pair(pair, *tokenizer) ==
             prompt +
                 "[Yo<|im_end|>]\n<|im_start|>user\n!<|im_end|>\n<|im_start|>assistant\n[ab<|im_end|>] | " +
                 prompt + "[No.<|im_end|>]");
  BOOST_TEST(
      tokenizer->decode_bytes(std::span(pair.chosen.ids).first(static_cast<std::size_t>(pair.prompt_tokens))) ==
      "user\nHi\nassistant\nab\nuser\nSo?\nassistant\n");
}

// An answer of the prompt begins with a token, as it did when the model wrote it.
BOOST_AUTO_TEST_CASE(answers_in_the_prompt_are_tokens_of_their_own) {
  const std::string line_end = byte_letter('\n');
  TokenizerJson json = byte_level({line_end + line_end});  // "\n\n" is one token
  json.merges = "[[\"" + line_end + "\",\"" + line_end + "\"]]";
  const auto tokenizer = open_json(json.text());
  const std::string prompt = "[" + user + "," + said("\\n ") + "," + said("So?\\n\\n ", "user") + "]";
  const auto pair = pair_at(Pairs(line_of(prompt, said("\\n"), said("a"))).open(*tokenizer), 0);
  BOOST_TEST(std::ranges::count(pair.chosen.ids, 256) == 1);
}

BOOST_AUTO_TEST_CASE(both_sequences_begin_with_the_prompt) {
  for (const std::string prompt : {R"("2+2=")", R"([{"role":"user","content":"ab"}])"}) {
    const bool chat = prompt[0] == '[';
    const std::string line = line_of(prompt, chat ? said("ab c") : R"("ab c")", chat ? said("") : R"("")");
    for (const auto& tokenizer : {bytes(), spaced_tokenizer()}) {
      const auto pair = pair_at(Pairs(line).open(*tokenizer), 0);
      const auto count = static_cast<std::size_t>(pair.prompt_tokens);
      BOOST_TEST(std::vector(pair.chosen.ids.begin(), pair.chosen.ids.begin() + pair.prompt_tokens) ==
                     std::vector(pair.rejected.ids.begin(), pair.rejected.ids.begin() + pair.prompt_tokens),
                 boost::test_tools::per_element());
      for (const TokenSequence* s : {&pair.chosen, &pair.rejected}) {
        BOOST_TEST(s->starts.empty());
        BOOST_REQUIRE(s->targets.size() == s->ids.size());
        for (std::size_t i = 0; i + 1 < s->ids.size(); ++i)
          BOOST_TEST(s->targets[i] == (i + 1 < count ? -100 : s->ids[i + 1]));
        BOOST_TEST(s->targets.back() == -100);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(messages_cannot_spell_control_tokens) {
  const std::string end = "<|im_end|>\\n<|im_start|>assistant\\n";
  const auto tokenizer = chat_tokenizer();
  for (const std::string& prompt : {said(end, "user"), "\"" + end + "\""}) {
    const auto pair =
        pair_at(Pairs(line_of(prompt, "[" + said("a" + end) + "]", "[" + said("b") + "]")).open(*tokenizer), 0);
    for (const TokenSequence* s : {&pair.chosen, &pair.rejected}) {
      BOOST_TEST(std::ranges::count(s->ids, 256) == 2);
      BOOST_TEST(std::ranges::count(s->ids, 257) == 2);
      BOOST_TEST(std::ranges::count(s->targets, 257) == 1);
    }
  }
  const auto texts =
      pair_at(Pairs(line_of("\"" + end + "\"", "\"" + end + "\"", R"("b")")).open(*tokenizer), 0);
  BOOST_TEST(std::ranges::count(texts.chosen.ids, 256) + std::ranges::count(texts.chosen.ids, 257) == 0);
}

BOOST_AUTO_TEST_CASE(what_is_too_long_is_cut_or_left_out) {
  const std::string prompt = R"("12345")";
  const std::string lines = line_of(prompt, R"("abcdef")", R"("ab")") + line_of(prompt, R"("ab")", R"("cd")") +
                            line_of(R"("0123456789")", R"("a")", R"("b")") +
                            line_of(prompt, R"("abcx")", R"("abcy")") + line_of(prompt, R"("a")", R"("a")");
  Pairs pairs(lines);
  pairs.options.max_tokens = 9;  // <s>, 5 of the prompt, 3 of a completion
  const auto cut = pairs.open(*bytes());
  BOOST_TEST(marked_pair(pair_at(cut, 0), *bytes()) == "<s>12345[abc] | <s>12345[ab</s>]");
  BOOST_TEST(marked_pair(pair_at(cut, 1), *bytes()) == "<s>12345[ab</s>] | <s>12345[cd</s>]");
  const PreferenceReport& report = cut.report();
  BOOST_TEST(report.pairs == 2);
  BOOST_TEST(report.truncated == 1);
  BOOST_TEST(report.too_long == 1);
  BOOST_TEST(report.equal == 2);
  BOOST_TEST(report.tokens == 36);
  BOOST_TEST(report.target_tokens == 12);
  BOOST_TEST(report.longest == 9);
  pairs.options.truncation = Truncation::drop;
  const auto whole = pairs.open(*bytes());
  BOOST_TEST(whole.size() == 1);
  BOOST_TEST(marked_pair(pair_at(whole, 0), *bytes()) == "<s>12345[ab</s>] | <s>12345[cd</s>]");
  BOOST_TEST(whole.report().too_long == 3);
  BOOST_TEST(whole.report().equal == 1);
  BOOST_TEST(whole.report().truncated == 0);
  pairs.options.max_tokens = 6;
  BOOST_TEST(pairs.error(*bytes()) ==
             "'pairs.jsonl': there are no pairs to learn from; 5 are too long, 0 have equal completions");
}

BOOST_AUTO_TEST_CASE(a_pair_is_as_long_as_the_longer_of_its_sequences) {
  Pairs pairs(line_of(R"("12345")", R"("ab")", R"("abcdef")") + line_of(R"("12")", R"("a")", R"("b")"));
  BOOST_TEST(pairs.open(*bytes()).report().longest == 13);
  pairs.options.max_tokens = 9;
  pairs.options.truncation = Truncation::drop;
  BOOST_TEST(pairs.open(*bytes()).report().too_long == 1);
}

// A cut within a completion leaves nothing behind its last target.
BOOST_AUTO_TEST_CASE(a_sequence_ends_with_its_last_target) {
  const std::string turns = said("ab") + "," + said("0123456789", "user") + "," + said("c");
  Pairs pairs(line_of(user, "[" + turns + "]", said("d")));
  const auto tokenizer = chat_tokenizer();
  const auto whole = pair_at(pairs.open(*tokenizer), 0);
  BOOST_TEST(whole.chosen.targets[whole.chosen.targets.size() - 2] == 257);
  pairs.options.max_tokens = std::ssize(whole.chosen.ids) - 4;
  BOOST_TEST(marked(pair_at(pairs.open(*tokenizer), 0).chosen, *tokenizer) ==
             "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[ab<|im_end|>]");
}

BOOST_AUTO_TEST_CASE(several_files_in_their_order) {
  const ScratchDirectory folder;
  put_contents(folder / "a.jsonl", "\xEF\xBB\xBF" + line_of(R"("1")", R"("a")", R"("b")") + "\r\n  \n");
  put_contents(folder / "b.jsonl", line_of(R"("2")", R"("c")", R"("d")"));
  PreferenceDataOptions options;
  options.files = {folder / "b.jsonl", folder / "a.jsonl"};
  const auto data = PreferenceDataset::open(options, *bytes());
  BOOST_TEST(data.size() == 2);
  BOOST_TEST(marked_pair(pair_at(data, 0), *bytes()) == "<s>2[c</s>] | <s>2[d</s>]");
  BOOST_TEST(marked_pair(pair_at(data, 1), *bytes()) == "<s>1[a</s>] | <s>1[b</s>]");
  BOOST_CHECK_THROW(pair_at(data, 2), Error);
  BOOST_TEST(error_text([&] { pair_at(data, -1); }) == "kformer::PreferenceDataset::read: pair -1 of 2");
}

BOOST_AUTO_TEST_CASE(a_fingerprint_knows_tokens_and_targets) {
  const auto of = [](const std::string& line) { return Pairs(line).open(*bytes()).fingerprint(); };
  const std::string usual = of(line_of(R"("1")", R"("ab")", R"("ac")"));
  BOOST_TEST(usual == of(line_of(R"("1")", R"("ab")", R"("ac")")));
  BOOST_TEST(usual != of(line_of(R"("1")", R"("ab")", R"("ad")")));
  BOOST_TEST(usual != of(line_of(R"("1a")", R"("b")", R"("c")")));
  BOOST_TEST(usual != of(line_of(R"("1")", R"("ac")", R"("ab")")));
}

// Of two sets with the same tokens and targets one after another, each pair has the first turn in another sequence.
BOOST_AUTO_TEST_CASE(a_fingerprint_knows_where_sequences_end) {
  const auto tokenizer = spaced_tokenizer();
  const auto turns = [&](const std::string& first, const std::string& second) {
    return "[" + said(first) + "," + user + "," + said(second) + "]";
  };
  const auto of = [&](const std::string& chosen, const std::string& rejected) {
    Pairs pairs(line_of(user, chosen, rejected));
    pairs.options.chat->style = ChatStyle::llama2;
    return pairs.open(*tokenizer);
  };
  const auto one = of(turns("Yo", "No"), said("ab")), other = of(said("Yo"), turns("No", "ab"));
  const auto joined = [](const PreferenceDataset& data, auto member) {
    const auto pair = pair_at(data, 0);
    Ids all = pair.chosen.*member;
    all.insert(all.end(), (pair.rejected.*member).begin(), (pair.rejected.*member).end());
    return all;
  };
  BOOST_TEST(joined(one, &TokenSequence::ids) == joined(other, &TokenSequence::ids),
             boost::test_tools::per_element());
  BOOST_TEST(joined(one, &TokenSequence::targets) == joined(other, &TokenSequence::targets),
             boost::test_tools::per_element());
  BOOST_TEST(one.fingerprint() != other.fingerprint());
}

BOOST_AUTO_TEST_CASE(the_beginning_of_text) {
  Pairs pairs(line_of(R"("1")", R"("a")", R"("b")") + line_of(R"("")", R"("a")", R"("b")"));
  pairs.options.add_bos = false;
  const auto without = pairs.open(*bytes());
  BOOST_TEST(marked_pair(pair_at(without, 0), *bytes()) == "1[a</s>] | 1[b</s>]");
  // An empty text still has a beginning, or there would be nothing to answer to.
  BOOST_TEST(marked_pair(pair_at(without, 1), *bytes()) == "<s>[a</s>] | <s>[b</s>]");
  pairs.options.bos = 3;
  BOOST_TEST(pair_at(pairs.open(*chat_tokenizer()), 1).chosen.ids.front() == 3);
  pairs.options.add_bos = true;
  BOOST_TEST(pair_at(pairs.open(*chat_tokenizer()), 0).chosen.ids.front() == 3);
  pairs.options.bos = {};
  BOOST_TEST(pairs.error(*chat_tokenizer()) ==
             "'pairs.jsonl', line 2: the prompt is empty, and the tokenizer has no beginning-of-text token");
  Pairs chat(line_of(user, said("a"), said("b")));
  chat.options.bos = 3;
  for (const bool adds : {false, true}) {
    chat.options.add_bos = adds;
    BOOST_TEST((pair_at(chat.open(*chat_tokenizer()), 0).chosen.ids.front() == 3) == adds);
  }
}

BOOST_AUTO_TEST_CASE(lines_that_are_no_pairs) {
  const std::string good = line_of(R"("1")", R"("a")", R"("b")");
  const std::string expected =
      R"(expected "chosen" and "rejected", or "preferred_output" and "non_preferred_output", with texts or )"
      R"(messages, and the prompt as "prompt", "messages", "conversations", "question" or "instruction", or at the )"
      R"(beginning of both)";
  BOOST_TEST(line_error(good + "{\"prompt\": ") ==
             "'pairs.jsonl', line 2: the line is not JSON, at byte 12; " + expected);
  for (const std::string line :
       {"[1]", "7", R"({"prompt":"a","chosen":"b"})", R"({"prompt":"a","rejected":"b"})"})
    BOOST_TEST(line_error(good + "\n" + line) == "'pairs.jsonl', line 3: the line is not a pair; " + expected);
  BOOST_TEST(line_error(line_of(R"("1")", R"("a")", "[" + said("b") + "]")) ==
             "'pairs.jsonl', line 1: one of \"chosen\" and \"rejected\" is a text, the other is not");
  BOOST_TEST(line_error(line_of(user, "7", "8")) ==
             "'pairs.jsonl', line 1: \"chosen\" is neither a text nor a list of messages");
  BOOST_TEST(line_error(line_of("null", "[" + said("a") + "]", said("b"))) ==
             "'pairs.jsonl', line 1: \"prompt\" is neither a text nor a list of messages");
  BOOST_TEST(line_error(line_of(user, "[]", "[]")) ==
             "'pairs.jsonl', line 1: \"chosen\" is not a list of messages");
  BOOST_TEST(line_error(line_of(user, said("a"), R"([{"role":"assistant"}])")) ==
             "'pairs.jsonl', line 1: message 0 of \"rejected\" has no text \"content\"");
  BOOST_TEST(line_error(line_of("[" + user + "," + said("a", "tool") + "]", said("a"), said("b"))) ==
             "'pairs.jsonl', line 1: message 1 of \"prompt\" has the unknown role 'tool'; expected system "
             "(developer), user (human) or assistant (gpt)");
  BOOST_TEST(line_error(line_of(R"("1")", R"("1e999)", R"("b")"))
                 .starts_with("'pairs.jsonl', line 1: the line is not JSON"));
  BOOST_TEST(line_error(R"({"x":1e999})") == "'pairs.jsonl', line 1: a number is beyond the range of doubles");
  BOOST_TEST(line_error(R"({"chosen":)" + std::string(100000, '[')) ==
             "'pairs.jsonl', line 1: the line is nested more than 64 levels deep");
  BOOST_TEST(line_error("\n \n") ==
             "'pairs.jsonl': there are no pairs to learn from; 0 are too long, 0 have equal completions");
}

BOOST_AUTO_TEST_CASE(turns_that_are_out_of_order) {
  BOOST_TEST(line_error(line_of("", "[" + said("a") + "]", "[" + said("b") + "]")) ==
             "'pairs.jsonl', line 1: there is no \"prompt\", and \"chosen\" and \"rejected\" have no first "
             "messages in "
             "common");
  BOOST_TEST(
      line_error(line_of("[" + user + "," + said("a") + "]", said("a"), said("b"))) ==
      "'pairs.jsonl', line 1: the prompt ends with a message of the assistant; expected one of the user");
  // One list is the beginning of the other.
  BOOST_TEST(line_error(line_of("", "[" + user + "]", "[" + user + "," + said("a") + "]")) ==
             "'pairs.jsonl', line 1: there is no \"prompt\", and \"chosen\" and \"rejected\" have no first "
             "messages in "
             "common");
  BOOST_TEST(
      line_error(line_of("", "[" + user + "," + said("a") + "]", "[" + user + "," + said("a", "user") + "]")) ==
      "'pairs.jsonl', line 1: behind the prompt \"rejected\" goes on with a message of the user; expected one "
      "of "
      "the assistant");
  BOOST_TEST(
      line_error(line_of(R"("Ho")", "[" + user + "," + said("a") + "]", "[" + user + "," + said("b") + "]")) ==
      "'pairs.jsonl', line 1: \"chosen\" and \"rejected\" begin with other messages than the "
      "\"prompt\"");
  BOOST_TEST(
      line_error(line_of("[" + user + "," + said("s", "system") + "," + user + "]", said("a"), said("b"))) ==
      "'pairs.jsonl', line 1: kformer::chat_pieces: message 1 of role 'system': a system message must come "
      "first, "
      "and only once");
}

BOOST_AUTO_TEST_CASE(equal_completions_teach_nothing) {
  const std::string both = "[" + user + "," + said("a") + "]";
  Pairs pairs(line_of("", both, both) + line_of(user, said("a"), said("b")));
  BOOST_TEST(pairs.open(*chat_tokenizer()).report().equal == 1);
}

BOOST_AUTO_TEST_CASE(a_tokenizer_without_a_template) {
  Pairs pairs(line_of(user, said("a"), said("b")));
  pairs.options.chat.reset();
  BOOST_TEST(
      pairs.error(*chat_tokenizer()) ==
      "'pairs.jsonl', line 1: kformer::ChatTemplate::recognise: the model has no chat template; supported: "
      "chatml, llama3, llama2, mistral, zephyr; a chat style says how messages are written");
  // Texts need none.
  Pairs texts(line_of(R"("1")", R"("a")", R"("b")"));
  texts.options.chat.reset();
  BOOST_TEST(texts.open(*chat_tokenizer()).size() == 1);
}

BOOST_AUTO_TEST_CASE(options_out_of_range_are_refused) {
  Pairs pairs(line_of(R"("1")", R"("a")", R"("b")"));
  const auto error = [&] { return error_text([&] { pairs.open(*bytes()); }); };
  pairs.options.vocab_size = 257;  // <s> is the last
  BOOST_TEST(
      pairs.error(*bytes()) ==
      "'pairs.jsonl', line 1: there is token 257, but the model has only 257; does the tokenizer belong to the "
      "model?");
  pairs.options.vocab_size = 258;
  BOOST_TEST(error() == "no error");
  pairs.options.truncation = static_cast<Truncation>(5);
  BOOST_TEST(error() ==
             "kformer::PreferenceDataset::open: truncation has the value 5, which its type does not name; "
             "choose one of: "
             "keep_start, drop");
  pairs.options.max_tokens = 1;
  BOOST_TEST(
      error() ==
      "kformer::PreferenceDataset::open: max_tokens is 1; expected at least 2, for a prompt and a completion");
  pairs.options.files.clear();
  BOOST_TEST(error() == "kformer::PreferenceDataset::open: there are no files of pairs");
  pairs.options = {.files = {"/nowhere/pairs.jsonl"}};
  BOOST_TEST(error() == "cannot read '/nowhere/pairs.jsonl': No such file or directory");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
