// SPDX-License-Identifier: MIT
// The forms in which published sets have conversations, pairs and prompts.
#include <boost/test/unit_test.hpp>
#include <string>

#include "data/chat_tokenizers.hpp"
#include "line_case.hpp"

namespace kformer::Testing {
namespace {

const std::string hi = R"([{"role":"user","content":"Hi"}])", yo = R"([{"role":"assistant","content":"Yo"}])",
                  no = R"([{"role":"assistant","content":"No."}])",
                  hi_yo = R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Yo"}])",
                  hi_no = R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"No."}])",
                  texts = R"("chosen":"Yo","rejected":"No.")",
                  lists = R"("chosen":)" + yo + R"(,"rejected":)" + no,
                  whole_lists = R"("chosen":)" + hi_yo + R"(,"rejected":)" + hi_no;

/// What chatml writes of a message that is not learnt, and of an answer that is.
std::string turn(const std::string& role, const std::string& text) {
  return "<|im_start|>" + role + "\n" + text + "<|im_end|>\n";
}
std::string answer(const std::string& text) { return "<|im_start|>assistant\n[" + text + "<|im_end|>]"; }

const std::string system_turn = turn("system", "Be."), user_turn = turn("user", "Hi");

/// The pair of Yo and No. behind a prompt.
std::string pair_behind(const std::string& prompt) {
  return prompt + answer("Yo") + " | " + prompt + answer("No.");
}

/// What is wrong with the only line of a file, without file and line.
template <class File>
std::string line_error(const std::string& line) {
  const std::string text = File(line).error(*chat_tokenizer()), place = ".jsonl', line 1: ";
  const auto at = text.find(place);
  return at == std::string::npos ? text : text.substr(at + place.size());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(line_forms)

// As TRL's extract_prompt does it.
BOOST_AUTO_TEST_CASE(two_texts_begin_with_their_prompt) {
  const auto pair = [](const std::string& chosen, const std::string& rejected) {
    return marked_line(R"({"chosen":")" + chosen + R"(","rejected":")" + rejected + "\"}", *bytes());
  };
  BOOST_TEST(pair(R"(\n\nHuman: Hi\n\nAssistant: Yo)", R"(\n\nHuman: Hi\n\nAssistant: No.)") ==
             "<s>\n\nHuman: Hi\n\nAssistant:[ Yo</s>] | <s>\n\nHuman: Hi\n\nAssistant:[ No.</s>]");
  BOOST_TEST(pair("ab", "ac") == "<s>a[b</s>] | <s>a[c</s>]");
  // Of several spaces one belongs to the completions.
  BOOST_TEST(pair("a  b", "a  c") == "<s>a [ b</s>] | <s>a [ c</s>]");
  // One text is the beginning of the other: there is no difference that a space could precede.
  BOOST_TEST(pair("ab", "abc") == "<s>a[b</s>] | <s>a[bc</s>]");
  BOOST_TEST(pair("a bc", "a b") == "<s>a [bc</s>] | <s>a [b</s>]");
}

// Their first bytes are equal.
BOOST_AUTO_TEST_CASE(a_prompt_in_two_texts_ends_with_a_whole_character) {
  const auto tokens = [](const std::string& chosen, const std::string& rejected) {
    return pair_at(Pairs(R"({"chosen":")" + chosen + R"(","rejected":")" + rejected + "\"}").open(*bytes()), 0)
        .prompt_tokens;
  };
  BOOST_TEST(tokens("n\xC3\xA9", "n\xC3\xA8") == 2);  // <s>, n
  BOOST_TEST(tokens("n\xC3\xA9", "n\xC3\xA9x") == 2);
  BOOST_TEST(tokens("n\xF0\x9F\x98\x80", "n\xF0\x9F\x98\x81") == 2);
  BOOST_TEST(tokens("n\xC3\xA9 \xC3\xA9", "n\xC3\xA9 \xC3\xA8") == 4);  // the space remains
  BOOST_TEST(tokens(R"(n\u00e9)", R"(n\u00e8)") == 2);
}

BOOST_AUTO_TEST_CASE(two_texts_without_a_beginning_in_common) {
  const std::string expected =
      "there is no \"prompt\", and \"chosen\" and \"rejected\" do not begin with the same "
      "text";
  for (const std::string line :
       {R"({"chosen":"ab","rejected":"cb"})", R"({"chosen":"","rejected":"a"})",
        R"({"chosen":"a","rejected":""})", R"({"chosen":"a","rejected":"ab"})",
        R"({"chosen":" a","rejected":" b"})", R"({"chosen":"\u00e9","rejected":"\u00e8"})"})
    BOOST_TEST(line_error<Pairs>(line) == expected);
  BOOST_TEST(line_error<Pairs>(R"({"chosen":"ab","rejected":"ac","system":"Be."})") ==
             "\"system\" is beside two texts without a \"prompt\"; expected a \"prompt\", too");
  Pairs equal(R"({"chosen":"ab","rejected":"ab"})"
              "\n"
              R"({"chosen":"ab","rejected":"ac"})");
  BOOST_TEST(equal.open(*bytes()).report().equal == 1);
}

BOOST_AUTO_TEST_CASE(pairs_of_one_conversation) {
  const std::string sharegpt =
      R"({"conversations":[{"from":"human","value":"Hi"}],"chosen":{"from":"gpt","value":"Yo"},)"
      R"("rejected":{"from":"gpt","value":"No."}})";
  for (const std::string& line :
       {sharegpt, R"({"conversations":)" + hi + "," + texts + "}", R"({"messages":)" + hi + "," + lists + "}",
        R"({"messages":)" + hi + "," + texts + "}", R"({"prompt":)" + hi + "," + texts + "}",
        R"({"prompt":"Hi","messages":[],)" + lists + "}", R"({"prompt":)" + hi + "," + whole_lists + "}",
        R"({"input":{"messages":)" + hi + R"(,"tools":[]},"preferred_output":)" + yo +
            R"(,"non_preferred_output":)" + no + "}",
        R"({"question":"Hi",)" + texts + "}", R"({"question":"Hi",)" + lists + "}",
        R"({"instruction":"Hi",)" + texts + "}",
        R"({"instruction":"Hi","input":"","history":[],)" + lists + "}",
        R"({"instruction":"Hi","input":null,"system":null,)" + texts + "}"})
    BOOST_TEST(marked_line(line, *chat_tokenizer()) == pair_behind(user_turn), line);
  BOOST_TEST(marked_line(R"({"instruction":"Add.","input":"2+2",)" + texts + "}", *chat_tokenizer()) ==
             pair_behind(turn("user", "Add.\n2+2")));
}

// Lists that do not begin with an answer contain their prompt. Only a "prompt" must agree with them.
BOOST_AUTO_TEST_CASE(lists_that_contain_their_prompt) {
  for (const std::string& member : {R"("messages":)" + hi_yo, std::string(R"("question":"So?")"),
                                    R"("conversations":)" + hi_no, std::string(R"("instruction":7)")})
    BOOST_TEST(marked_line("{" + member + "," + whole_lists + "}", *chat_tokenizer()) ==
               pair_behind(user_turn));
  BOOST_TEST(line_error<Pairs>(R"({"prompt":)" + hi_yo + "," + whole_lists + "}") ==
             "\"chosen\" and \"rejected\" begin with other messages than the \"prompt\"");
}

BOOST_AUTO_TEST_CASE(texts_stay_texts) {
  for (const std::string more : {"", R"(,"system":"")", R"(,"system":null)", R"(,"question":"So?")"})
    BOOST_TEST(marked_line(R"({"prompt":"Hi",)" + texts + more + "}", *bytes()) ==
               "<s>Hi[Yo</s>] | <s>Hi[No.</s>]");
}

BOOST_AUTO_TEST_CASE(a_pair_may_have_a_system_message) {
  const std::string with_system = R"([{"role":"system","content":"Be."},{"role":"user","content":"Hi"}])";
  const std::string system = R"({"system":"Be.",)";
  for (const std::string& line :
       {system + R"("prompt":"Hi",)" + texts + "}", system + R"("prompt":"Hi",)" + lists + "}",
        system + R"("prompt":)" + hi + "," + texts + "}",
        system + R"("prompt":)" + with_system + "," + lists + "}", system + R"("question":"Hi",)" + texts + "}",
        system + R"("instruction":"Hi",)" + lists + "}", system + whole_lists + "}",
        R"({"prompt":)" + with_system + "," + texts + "}"})
    BOOST_TEST(marked_line(line, *chat_tokenizer()) == pair_behind(system_turn + user_turn), line);
  BOOST_TEST(line_error<Pairs>(R"({"system":"Be!","prompt":)" + with_system + "," + lists + "}") ==
             "\"system\" is not what the first message says; expected one message of the "
             "system");
  BOOST_TEST(line_error<Pairs>(R"({"system":7,"prompt":"Hi",)" + texts + "}") == "\"system\" is not a text");
}

BOOST_AUTO_TEST_CASE(pairs_that_are_refused) {
  const auto error = line_error<Pairs>;
  BOOST_TEST(error(R"({"messages":)" + hi_yo + "," + texts + "}") ==
             "the prompt ends with a message of the assistant; expected one of the user");
  BOOST_TEST(error(R"({"conversations":"Hi",)" + texts + "}") == "\"conversations\" is not a list of messages");
  BOOST_TEST(error(R"({"question":["Hi"],)" + texts + "}") == "\"question\" is not a text");
  BOOST_TEST(error(R"({"instruction":null,)" + texts + "}") == "\"instruction\" is not a text");
  BOOST_TEST(error(R"({"instruction":"Hi","input":{},)" + texts + "}") == "\"input\" is not a text");
  BOOST_TEST(error(R"({"instruction":"Hi","history":[["a","b"]],)" + texts + "}") ==
             "\"history\" is beside \"instruction\"; expected the whole conversation as \"messages\"");
  BOOST_TEST(
      error(R"({"input":"Hi","preferred_output":)" + yo + R"(,"non_preferred_output":)" + no + "}") ==
      "there is no \"prompt\", and \"preferred_output\" and \"non_preferred_output\" have no first messages in "
      "common");
  BOOST_TEST(error(R"({"prompt":"Hi","preferred_output":)" + yo + R"(,"non_preferred_output":"No."})") ==
             "one of \"preferred_output\" and \"non_preferred_output\" is a text, the other is not");
}

BOOST_AUTO_TEST_CASE(prompts_with_their_completions) {
  const auto chat = [](const std::string& line) { return marked_chat(line, {}, *chat_tokenizer()); };
  for (const std::string& line :
       {R"({"prompt":)" + hi + R"(,"completion":)" + yo + "}", R"({"prompt":"Hi","completion":)" + yo + "}",
        R"({"prompt":)" + hi + R"(,"completion":"Yo"})", std::string(R"({"question":"Hi","answer":"Yo"})"),
        std::string(R"({"instruction":"Hi","output":"Yo"})"),
        std::string(R"({"instruction":"Hi","input":"","output":"Yo","system":"","history":null})")})
    BOOST_TEST(chat(line) == user_turn + answer("Yo") + "\n", line);
  BOOST_TEST(chat(R"({"instruction":"Add.","input":"2+2","output":"4"})") ==
             turn("user", "Add.\n2+2") + answer("4") + "\n");
  for (const std::string& line : {std::string(R"({"instruction":"Hi","output":"Yo","system":"Be."})"),
                                  std::string(R"({"prompt":"Hi","completion":"Yo","system":"Be."})"),
                                  R"({"conversations":)" + hi_yo + R"(,"system":"Be."})",
                                  R"({"messages":)" + hi_yo + R"(,"system":"Be."})"})
    BOOST_TEST(chat(line) == system_turn + user_turn + answer("Yo") + "\n", line);
  // A line that has both is the conversation.
  BOOST_TEST(chat(R"({"prompt":"So?","completion":"No.","messages":)" + hi_yo + "}") ==
             user_turn + answer("Yo") + "\n");
  // A prompt without a completion is none.
  BOOST_TEST(chat(R"({"prompt":"So?","question":"Hi","answer":"Yo"})") == user_turn + answer("Yo") + "\n");
}

BOOST_AUTO_TEST_CASE(answers_in_the_prompt_of_a_completion_are_not_learnt) {
  const std::string prompt = R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"No."},)"
                             R"({"role":"user","content":"So?"}])";
  BOOST_TEST(marked_chat(R"({"prompt":)" + prompt + R"(,"completion":)" + yo + "}", {}, *chat_tokenizer()) ==
             user_turn + turn("assistant", "No.") + turn("user", "So?") + answer("Yo") + "\n");
}

BOOST_AUTO_TEST_CASE(a_prompt_and_a_completion_of_texts_are_written_as_they_are) {
  BOOST_TEST(marked_chat(R"({"prompt":"2+2=","completion":"<s> 4"})", {}, *bytes()) == "<s>2+2=[<s> 4</s>]");
  BOOST_TEST(marked_chat(R"({"prompt":"2+2=","completion":"4","system":null})", {}, *chat_tokenizer()) ==
             "2+2=[4]");
  BOOST_TEST(marked_chat(R"({"prompt":"","completion":"4"})", {}, *bytes()) == "<s>[4</s>]");
}

BOOST_AUTO_TEST_CASE(conversations_that_are_refused) {
  const auto error = line_error<Chats>;
  for (const std::string line :
       {R"({"prompt":"Hi"})", R"({"completion":"Hi"})", R"({"instruction":"Hi","answer":"Yo"})"})
    BOOST_TEST(
        error(line).starts_with("the line is not a conversation; expected \"messages\" or \"conversations\""));
  BOOST_TEST(error(R"({"prompt":)" + hi_yo + R"(,"completion":"Yo"})") ==
             "the prompt ends with a message of the assistant; expected one of the user");
  BOOST_TEST(
      error(R"({"prompt":)" + hi + R"(,"completion":)" + hi_yo + "}") ==
      "behind the prompt \"completion\" goes on with a message of the user; expected one of the assistant");
  BOOST_TEST(error(R"({"question":"Hi","answer":7})") == "\"answer\" is neither a text nor a list of messages");
  BOOST_TEST(error(R"({"question":7,"answer":"Yo"})") == "\"question\" is not a text");
  BOOST_TEST(error(R"({"system":["Be."],"messages":)" + hi_yo + "}") == "\"system\" is not a text");
  BOOST_TEST(error(R"({"system":"Be.","messages":[{"role":"system","content":"Be!"}]})") ==
             "\"system\" is not what the first message says; expected one message of the system");
}

BOOST_AUTO_TEST_CASE(prompts_of_every_form) {
  const auto sample = [](const std::string& line) { return Prompts(line).open(*chat_tokenizer()).at(0); };
  const auto text = [](const PromptSample& s) { return spelled(s.ids, *chat_tokenizer()); };
  const std::string begun = "<|im_start|>assistant\n";
  for (const std::string& member : {R"("prompt":)" + hi, R"("messages":)" + hi, R"("conversations":)" + hi,
                                    std::string(R"("question":"Hi")"), std::string(R"("instruction":"Hi")")}) {
    const PromptSample one = sample("{" + member + R"(,"answer":"Yo"})");
    BOOST_TEST(text(one) == user_turn + begun, member);
    BOOST_TEST(one.fields.size() == 1u);
    BOOST_TEST(one.fields.at("answer") == "\"Yo\"");
    const PromptSample other = sample("{" + member + R"(,"system":"Be."})");
    BOOST_TEST(text(other) == system_turn + user_turn + begun, member);
    BOOST_TEST(other.prompt == one.prompt);
    BOOST_TEST(other.fields.at("system") == "\"Be.\"");
  }
  BOOST_TEST(sample(R"({"messages":)" + hi + "}").prompt == R"([{"content":"Hi","role":"user"}])");
  BOOST_TEST(sample(R"({"question":"Hi"})").prompt == "\"Hi\"");
  const PromptSample about = sample(R"({"instruction":"Add.","input":"2+2"})");
  BOOST_TEST(text(about) == turn("user", "Add.\n2+2") + begun);
  BOOST_TEST(about.prompt == "\"Add.\"");
  BOOST_TEST(about.fields.at("input") == "\"2+2\"");
  BOOST_TEST(text(sample(R"({"prompt":"Hi","system":"Be."})")) == system_turn + user_turn + begun);
  const PromptSample both = sample(R"({"prompt":"Hi","system":"","question":"So?"})");
  BOOST_TEST(text(both) == "Hi");
  BOOST_TEST(both.fields.at("question") == "\"So?\"");
}

BOOST_AUTO_TEST_CASE(prompts_that_are_refused) {
  const auto error = line_error<Prompts>;
  BOOST_TEST(error(R"({"question":["Hi"]})") == "\"question\" is not a text");
  BOOST_TEST(error(R"({"instruction":"Hi","input":7})") == "\"input\" is not a text");
  BOOST_TEST(error(R"({"prompt":"Hi","system":7})") == "\"system\" is not a text");
  BOOST_TEST(error(R"({"messages":)" + hi_yo + "}") ==
             "kformer::apply_chat: the last of 2 messages is not from the user; there is nothing to answer");
}

BOOST_AUTO_TEST_CASE(messages_of_several_parts) {
  const std::string parts = R"([{"type":"text","text":"H"},{"type":"text","text":"i","cache":true}])";
  BOOST_TEST(marked_chat(R"({"messages":[{"role":"developer","content":"Be."},{"role":"user","content":)" +
                             parts + R"(},{"role":"assistant","content":[{"type":"text","text":"Yo"}]}]})",
                         {}, *chat_tokenizer()) == system_turn + user_turn + answer("Yo") + "\n");
  const auto error = [](const std::string& content) {
    return line_error<Chats>(R"({"messages":[{"role":"user","content":)" + content + "}]}");
  };
  for (const std::string other : {R"([{"type":"image_url","image_url":{}}])", R"(["Hi"])", R"([{"text":"Hi"}])",
                                  R"([{"type":7,"text":"Hi"}])"})
    BOOST_TEST(
        error(other) ==
        "message 0 of \"messages\" has a part that is no text; expected {\"type\": \"text\", \"text\": ...}");
  BOOST_TEST(error(R"([{"type":"text","text":null}])") ==
             "a part of message 0 of \"messages\" has no text \"text\"");
  for (const std::string none : {"null", "[]", "{}", "7"})
    BOOST_TEST(error(none) == "message 0 of \"messages\" has no text \"content\"");
  BOOST_TEST(line_error<Chats>(R"({"messages":[{"role":[],"content":"Hi"}]})") ==
             "message 0 of \"messages\" has no text \"role\"");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
