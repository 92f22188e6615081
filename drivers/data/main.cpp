// SPDX-License-Identifier: MIT
// kformer-data: prepares training data, and shows what a training program will see.
#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>

#include "app/program.hpp"
#include "app/stop.hpp"
#include "data/options.hpp"
#include "data/report.hpp"
#include "data/stoppable_tokenizer.hpp"

namespace kformer::drivers {
namespace {

std::unique_ptr<const Tokenizer> tokenizer_of(const DataCommand& command) {
  if (command.tokenizer) return open_tokenizer(*command.tokenizer, command.tokenizer_path);
  if (command.data.format == DataFormat::synthetic) return open_tokenizer(TokenizerFormat::byte, {});
  return nullptr;
}

std::string cache_of(const DataOptions& options) {
  return options.cache.value_or(default_cache_folder()).string();
}

void print_report(const DataCommand& command, const DataOptions& options, const TokenDataset& data,
                  const Tokenizer* tokenizer) {
  fmt::print("{}", report_text(data, options));
  if (!command.inspect) {
    const std::string cache = cache_of(options);
    fmt::print("{:<15} {}\n", "cache", cache.empty() ? "none" : cache);
    return;
  }
  fmt::print("\n{}", lengths_text(data.report()));
  TokenSequence sequence;
  for (const std::int64_t index : command.sequences) {
    data.read(index, sequence);
    fmt::print("\n{}", sequence_text(sequence, index, data.tokens_in(index), tokenizer));
  }
}

int run(const DataCommand& command) {
  const auto tokenizer = tokenizer_of(command);
  DataOptions options = command.data;
  if (tokenizer && command.chat_style) options.chat = chat_template_of(*tokenizer, command.chat_style);
  const StopRequest stop(0);
  try {
    const TokenDataset data = tokenizer ? TokenDataset::open(options, StoppableTokenizer(*tokenizer, stop))
                                        : TokenDataset::open(options);
    if (auto reason = stop.reason()) throw Stopped{*reason};
    print_report(command, options, data, tokenizer.get());
    return exit_ok;
  } catch (const Stopped& stopped) {
    const bool keeps = options.format != DataFormat::synthetic && !cache_of(options).empty();
    fmt::print("stopped ({}); {}\n", stopped.reason,
               keeps ? "the cache keeps the files that were finished" : "nothing was written");
    return exit_stopped;
  }
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  drivers::listen_to_signals();
  return drivers::program_main(argc, argv, drivers::data_command, drivers::run);
}
