// SPDX-License-Identifier: MIT
#include "train/text_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::vector<SampleRecord> TextWriter::write(Learner& learner, const std::function<bool()>& stop) const {
  std::vector<SampleRecord> samples;
  for (std::size_t i = 0; i < m_prompts.size(); ++i) {
    std::vector<std::int32_t> tokens = m_tokens[i];
    TokenStream stream(m_encoder.tokenizer(), tokens);
    SampleRecord sample{learner.steps_done(), m_prompts[i], {}};
    std::uint64_t state = measure::mix(measure::mix(m_seed + i) + static_cast<std::uint64_t>(sample.step));
    const auto& ends = m_encoder.end_of_text();
    for (std::int64_t n = 0; n < m_table.max_new_tokens && tokens.size() < m_seq_len; ++n) {
      if (stop()) return samples;
      const std::int32_t id = choose(learner.logits_after(tokens), state = measure::mix(state));
      if (id < 0 || std::ranges::count(ends, id) > 0) break;
      tokens.push_back(id);
      sample.text += stream.push(id);
    }
    sample.text += stream.finish();
    samples.push_back(std::move(sample));
  }
  return samples;
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
