// SPDX-License-Identifier: MIT
#include "generate/figures.hpp"

#include <fmt/format.h>

namespace kformer::drivers {

namespace {

std::string speed(std::int64_t tokens, double seconds) {
  if (tokens == 0 || seconds <= 0) return fmt::format("{} tokens", tokens);
  return fmt::format("{} tokens in {:.3g} s, {:.4g} tokens/s", tokens, seconds,
                     static_cast<double>(tokens) / seconds);
}

std::string memory_by_class(const Measurement& m) {
  if (m.peak_total == 0) return {};
  std::string text = fmt::format("  memory   {} at most ({}), forecast {}\n", format_bytes(m.peak_total),
                                 classes_text(m.peak), format_bytes(m.predicted));
  if (m.check_bytes > 0)
    text += fmt::format("  check    up to {}, not in this peak\n", format_bytes(m.check_bytes));
  return text;
}

std::string ends_of(const Generation& generation) {
  std::string text;
  for (const Sequence& s : generation.sequences)
    text += (text.empty() ? "" : ", ") + sequence_end_names[static_cast<std::size_t>(s.end)];
  return text;
}

std::string source_of(const PromptTable& prompt) {
  if (!prompt.file.empty()) return "file " + prompt.file.string();
  const std::string text = prompt_text(prompt);
  return fmt::format("{} of {} bytes", prompt.chat ? "chat" : "text", text.size());
}

std::string or_beside_weights(const std::filesystem::path& path) {
  return path.empty() ? "beside the weights" : path.string();
}

}  // namespace

std::string classes_text(const std::array<std::size_t, memory_classes>& peaks) {
  std::string text;
  for (int c = 0; c < memory_classes; ++c)
    if (const std::size_t bytes = peaks[static_cast<std::size_t>(c)]; bytes > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(static_cast<MemoryClass>(c)),
                          format_bytes(bytes));
  return text;
}

std::string figures_of(const GenerationLabel& label, const Generation& g) {
  const Measurement& m = g.measurement;
  const std::string adapter = label.adapter.empty() ? "" : fmt::format(" with {}", label.adapter);
  std::string text = fmt::format("{}{} [{}]: {}\n", label.prompt, adapter, label.repeat,
                                 case_status_names[static_cast<std::size_t>(m.status)]);
  if (!g.sequences.empty()) {
    text += fmt::format("  prefill  {}\n", speed(g.prefill_tokens, g.prefill_seconds));
    text += fmt::format("  decode   {}", speed(g.decode_tokens, g.decode_seconds));
    if (const double share = share_of_limit(g); share == share)
      text += fmt::format(", {:.0f} % of the bandwidth limit", 100 * share);
    text += fmt::format("\n  stopped: {}\n", ends_of(g));
  }
  text += memory_by_class(m);
  if (!m.message.empty()) text += "  " + m.message + "\n";
  return text;
}

std::string plan_of(const GenerateDeck& deck) {
  const GenerateTable& g = deck.generate;
  std::string text = fmt::format("{} prompt{} of '{}', {} repeat{} each:\n", deck.prompts.size(),
                                 deck.prompts.size() == 1 ? "" : "s", deck.run.name, deck.timing.repeats,
                                 deck.timing.repeats == 1 ? "" : "s");
  for (const PromptTable& prompt : deck.prompts)
    text += fmt::format("  {}: {}\n", prompt.name, source_of(prompt));
  text += fmt::format("weights    {} ({})\ntokenizer  {} ({})\n", deck.weights.path.string(),
                      name_of(deck.weights.format), or_beside_weights(deck.tokenizer.path),
                      name_of(deck.tokenizer.format));
  text += fmt::format("generate   {} row{}, at most {} new tokens each, {} on {}, kv_cache {}\n", g.batch,
                      g.batch == 1 ? "" : "s", g.max_new_tokens, name_of(g.dtype), g.execution_space,
                      name_of(g.kv_cache));
  if (deck.sampling.temperature == 0) return text + "sampling   greedy\n";
  return text +
         fmt::format("sampling   temperature {}, seed {}\n", deck.sampling.temperature, deck.sampling.seed);
}

}  // namespace kformer::drivers
