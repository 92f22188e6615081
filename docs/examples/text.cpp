// SPDX-License-Identifier: MIT
// Text to tokens and back, and a conversation as a chat model wants it. Checks the round trip, the conversation
// against the published form, and that a message cannot become a control token. Uses the tokenizer of bytes, which
// needs no file.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "kformer/text/chat_template.hpp"
#include "kformer/text/tokenizer.hpp"

int main() {
  // [tokenizer]
  // Of a published model: open_tokenizer(kformer::TokenizerFormat::hf, "Llama-3.2-1B").
  const auto tokenizer = kformer::open_tokenizer(kformer::TokenizerFormat::byte, "");
  std::vector<std::int32_t> prompt = tokenizer->encode("Once upon");
  if (tokenizer->adds_bos()) prompt.insert(prompt.begin(), *tokenizer->bos());

  const std::vector<std::int32_t> generated = tokenizer->encode(" a time there was a naïve café");
  kformer::TokenStream stream(*tokenizer, prompt);  // continues the prompt
  std::string text;
  for (const std::int32_t id : generated) text += stream.push(id);  // whole characters only
  text += stream.finish();
  // [tokenizer]
  std::cout << text << "\n";

  // [chat]
  // Published with the model: tokenizer->chat_template().
  const auto chat =
      kformer::ChatTemplate::recognise("{% for message in messages %}{{'<|im_start|>' + message['role']}}");
  // The user spells out the end of a text. It stays text: only the template writes control tokens.
  const std::vector<kformer::ChatMessage> messages{{"user", "What does </s> mean?"}};
  const std::vector<std::int32_t> ids = tokenizer->encode_chat(kformer::chat_prompt(chat, messages));
  // [chat]
  const std::string conversation = tokenizer->decode(ids);
  std::cout << conversation << "\n" << ids.size() << " tokens\n";

  const bool good = text == " a time there was a naïve café" &&
                    std::ranges::count(ids, tokenizer->eos().front()) == 0 &&
                    conversation == "<|im_start|>user\nWhat does </s> mean?<|im_end|>\n<|im_start|>assistant\n";
  return good ? 0 : 1;
}
