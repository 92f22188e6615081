// SPDX-License-Identifier: MIT
#include "data/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/utf8.hpp"
#include "kformer/core/enum_names.hpp"

namespace kformer::drivers {
namespace {

std::string line(const std::string& name, const std::string& value) {
  return fmt::format("{:<15} {}\n", name, value);
}

/// Printable, on one line.
std::string escaped(const std::string& bytes) {
  std::string text;
  for (const char c : Impl::repair_utf8(bytes)) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n')
      text += "\\n";
    else if (c == '\\')
      text += "\\\\";
    else if (code < 0x20 || code == 0x7F)
      text += fmt::format("\\x{:02x}", code);
    else
      text += c;
  }
  return text;
}

std::string spelled(std::span<const std::int32_t> ids, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return fmt::format("{}", fmt::join(ids, " "));
  std::string bytes;
  for (const std::int32_t id : ids) {
    const std::string text = tokenizer->token_bytes(id, false);
    bytes += text.empty() ? tokenizer->piece(id) : text;
  }
  return escaped(bytes);
}

/// The tokens begin … end − 1, split into runs of tokens with and without a loss.
std::string document_text(const TokenSequence& sequence, std::size_t begin, std::size_t end,
                          const Tokenizer* tokenizer) {
  const auto learnt = [&](std::size_t i) { return i > begin && sequence.targets[i - 1] == sequence.ids[i]; };
  std::string text;
  for (std::size_t i = begin; i < end;) {
    std::size_t run = i + 1;
    while (run < end && learnt(run) == learnt(i)) ++run;
    text += fmt::format("  {} {}\n", learnt(i) ? ">" : "|",
                        spelled(std::span(sequence.ids).subspan(i, run - i), tokenizer));
    i = run;
  }
  return text;
}

}  // namespace

std::string report_text(const TokenDataset& data, const DataOptions& options) {
  const DataReport& report = data.report();
  std::string text = line("documents", fmt::format("{}", report.documents));
  text += line("tokens", fmt::format("{}, {} in the longest document", report.tokens, report.longest_document));
  text += line("sequences", fmt::format("{} of {} tokens, {}, {:.2f} % full", report.sequences, options.seq_len,
                                        name_of(options.packing), 100 * report.fill));
  text += line("target tokens", fmt::format("{}", report.target_tokens));
  if (options.packing == Packing::best_fit)
    text += line("at least", fmt::format("{} sequences, however they are packed", report.least_sequences));
  if (options.packing == Packing::stream)
    text += line("dropped tokens", fmt::format("{}, at the end", report.dropped_tokens));
  else
    text += line("padding", fmt::format("{} places without a token", report.padding_tokens));
  if (options.format != DataFormat::synthetic)
    text += line("from the cache", fmt::format("{} of {} files", report.cached_files, options.files.size()));
  text += line("fingerprint", data.fingerprint());
  for (const std::string& note : report.notes) text += line("note", note);
  return text;
}

std::string lengths_text(const DataReport& report) {
  constexpr std::int64_t widest_bar = 40;
  const std::int64_t most = std::ranges::max(report.lengths);
  std::string text = "document lengths\n";
  for (std::size_t k = 0; k < report.lengths.size(); ++k) {
    const std::int64_t count = report.lengths[k];
    const std::int64_t first = k == 0 ? 0 : std::int64_t(1) << (k - 1), last = k == 0 ? 0 : 2 * first - 1;
    const auto bar = static_cast<std::size_t>((count * widest_bar + most - 1) / most);
    text += fmt::format("{:>10} to {:>10} {:>10}  {}", first, last, count, std::string(bar, '#'));
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  }
  return text;
}

std::string sequence_text(const TokenSequence& sequence, std::int64_t index, std::int64_t tokens,
                          const Tokenizer* tokenizer) {
  const auto used = static_cast<std::size_t>(tokens);
  std::string text =
      fmt::format("sequence {}: {} targets, {} padding\n", index,
                  std::ranges::count_if(sequence.targets, [](std::int32_t target) { return target >= 0; }),
                  sequence.ids.size() - used);
  for (std::size_t s = 0; s < sequence.starts.size(); ++s) {
    const auto begin = static_cast<std::size_t>(sequence.starts[s]);
    const auto end = s + 1 < sequence.starts.size() ? static_cast<std::size_t>(sequence.starts[s + 1]) : used;
    text += fmt::format(" tokens {} to {}\n", begin, end - 1) + document_text(sequence, begin, end, tokenizer);
  }
  return text;
}

}  // namespace kformer::drivers
