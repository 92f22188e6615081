// SPDX-License-Identifier: MIT
#include "train/text_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kformer/core/error.hpp"
#include "measure/fill.hpp"

namespace kformer::drivers {

TextWriter::TextWriter(const TrainDeck& deck, const PromptEncoder& encoder)
    : m_table(*deck.samples),
      m_encoder(encoder),
      m_seed(measure::mix(static_cast<std::uint64_t>(deck.run.seed))),
      m_seq_len(static_cast<std::size_t>(deck.batch.seq_len)),
      m_prompts(m_table.prompts) {
  if (m_prompts.empty()) m_prompts.emplace_back();
  for (std::size_t i = 0; i < m_prompts.size(); ++i) {
    PromptTable prompt;
    prompt.name = fmt::format("samples.prompts[{}]", i);
    prompt.text = m_prompts[i];
    m_tokens.push_back(encoder.encode(prompt));
    if (m_tokens.back().size() >= m_seq_len)
      throw NotSupported(fmt::format("{} has {} tokens, but batch.seq_len = {} leaves no room to continue it",
                                     prompt.name, m_tokens.back().size(), m_seq_len));
  }
}

/// A text that is being written.
struct TextWriter::Text {
  std::vector<std::int32_t> tokens;
  TokenStream stream;
  std::uint64_t state;  // of its draws
  std::int64_t added = 0;
  std::string written{};
};

std::vector<SampleRecord> TextWriter::write(Learner& learner, const std::function<bool()>& stop) const {
  std::vector<Text> texts;
  const auto step = static_cast<std::uint64_t>(learner.steps_done());
  for (std::size_t i = 0; i < m_prompts.size(); ++i)
    texts.push_back({m_tokens[i], TokenStream(m_encoder.tokenizer(), m_tokens[i]),
                     measure::mix(measure::mix(m_seed + i) + step)});
  std::vector<std::size_t> open(texts.size());
  std::iota(open.begin(), open.end(), std::size_t{0});
  while (!open.empty() && !stop()) {
    std::vector<std::vector<std::int32_t>> tokens;
    for (const std::size_t i : open) tokens.push_back(texts[i].tokens);
    const auto logits = learner.logits_after(tokens);
    std::vector<std::size_t> still_open;
    for (std::size_t k = 0; k < open.size(); ++k)
      if (extend(texts[open[k]], logits[k])) still_open.push_back(open[k]);
    open = std::move(still_open);
  }
  std::vector<SampleRecord> samples;
  for (std::size_t i = 0; i < texts.size(); ++i)
    samples.push_back({learner.steps_done(), m_prompts[i], texts[i].written + texts[i].stream.finish()});
  return samples;
}

bool TextWriter::extend(Text& text, const std::vector<double>& logits) const {
  const std::int32_t id = choose(logits, text.state = measure::mix(text.state));
  if (id < 0 || std::ranges::count(m_encoder.end_of_text(), id) > 0) return false;
  text.tokens.push_back(id);
  text.written += text.stream.push(id);
  return ++text.added < m_table.max_new_tokens && text.tokens.size() < m_seq_len;
}

// −1 if every logit is NaN or −∞.
std::int32_t TextWriter::choose(const std::vector<double>& logits, std::uint64_t draw) const {
  double largest = -std::numeric_limits<double>::infinity();
  std::int32_t best = -1;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > largest) {
      largest = logits[i];
      best = static_cast<std::int32_t>(i);
    }
  if (best < 0 || m_table.temperature == 0) return best;
  const auto weight = [&](double logit) {
    return std::isnan(logit) ? 0 : std::exp((logit - largest) / m_table.temperature);
  };
  double sum = 0;
  for (const double logit : logits) sum += weight(logit);
  double rest = static_cast<double>(draw >> 11) * 0x1p-53 * sum;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    rest -= weight(logits[i]);
    if (rest < 0) return static_cast<std::int32_t>(i);
  }
  return best;
}

}  // namespace kformer::drivers
