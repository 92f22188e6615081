// SPDX-License-Identifier: MIT
// Text to tokens and back, and a conversation as a chat model wants it. Checks the round trip, and the conversation
// against the published form. Uses the tokenizer of bytes, which needs no file.
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
  const std::vector<kformer::ChatMessage> messages{{"user", "Why is the sky blue?"}};
  const std::string conversation = kformer::apply_chat(chat, messages);
  const std::vector<std::int32_t> ids = tokenizer->encode_with_special(conversation);
  // [chat]
  std::cout << conversation << "\n" << ids.size() << " tokens\n";

  const bool good = text == " a time there was a naïve café" && !ids.empty() &&
                    conversation == "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n";
  return good ? 0 : 1;
}
