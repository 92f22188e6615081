// SPDX-License-Identifier: MIT
// kformer-generate: a checkpoint continues prompts.
#include <fmt/format.h>

#include "app/session.hpp"
#include "app/stop.hpp"
#include "generate/figures.hpp"
#include "generate/prompt_loop.hpp"
#include "measure/allocation_witness.hpp"
#include "measure/spaces.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* program = "kformer-generate";

int run_deck(const GenerateDeck& deck, const std::string& space, ResultFile& file) {
  if (deck.profile.memory == MemoryProfile::peak) AllocationWitness::install();
  const StopRequest stop(deck.run.walltime_s);
  GenerateResults results(file, deck, space);
  const MachineLimits limits = measure_machine(space);
  results.add_machine(limits);
  fmt::print(stderr, "{}\n", describe(space, limits));
  const auto generator = make_text_generator(deck, space);
  return run_prompts({&deck, generator.get(), &results, [&] { return stop.reason(); }}, file);
}

int run(const CommandLine& line) {
  const GenerateDeck deck = load_generate_deck(line.deck);
  if (print_deck(line, deck.record)) return exit_ok;
  const std::string space = execution_space_of(deck.generate, built_spaces());
  if (line.dry_run) {
    fmt::print("{}", plan_of(deck));
    return exit_ok;
  }
  Session session(line, program, "generate", deck.run, deck.output, deck.record, stderr);
  return run_deck(deck, space, session.file());
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  const drivers::DriverInfo info{
      drivers::program,
      "Continues prompts with a checkpoint, and writes text, log-probabilities, time and memory to HDF5.",
      [] { return describe_deck_markdown<GenerateDeck>(); },
      [] { return describe_deck_json_schema<GenerateDeck>(); }};
  return drivers::driver_main(argc, argv, info, drivers::run);
}
