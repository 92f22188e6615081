// SPDX-License-Identifier: MIT
// kformer-memory: forecasts the memory of a model over a grid of batches, contexts and types.
#include <fmt/format.h>

#include "app/session.hpp"
#include "measure/memory_available.hpp"
#include "measure/spaces.hpp"
#include "memory/plan.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* program = "kformer-memory";

std::string name_of_case(const MemoryCase& c) {
  return fmt::format("{:<8} {:<8} {:<5} weights {} kv_cache {} prefill_chunk {} batch {} context {}",
                     c.execution_space, name_of(c.purpose), name_of(c.dtype), name_of(c.weights),
                     name_of(c.kv_cache), c.prefill_chunk, c.batch, c.context);
}

int run(const CommandLine& line) {
  const MemoryPlanDeck deck = load_memory_plan_deck(line.deck);
  if (print_deck(line, deck.record)) return exit_ok;
  const auto planner = make_memory_planner(deck);
  const std::vector<MemoryCase> cases = expand(deck.sweep, planner->model(), built_spaces());
  if (line.dry_run) {
    list_cases(deck.run, cases, name_of_case);
    return exit_ok;
  }
  Session session(line, program, "memory_plan", deck.run, deck.output, deck.record);
  const auto there_is = [&](const std::string& space) -> std::optional<std::size_t> {
    if (deck.plan.device_bytes > 0) return static_cast<std::size_t>(deck.plan.device_bytes);
    return memory_available(space);
  };
  return run_plan(*planner, deck, cases, there_is, session.file());
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  const drivers::DriverInfo info{
      drivers::program, "Estimates memory use without allocating, over a grid of batches, contexts and types.",
      [] { return describe_deck_markdown<MemoryPlanDeck>(); },
      [] { return describe_deck_json_schema<MemoryPlanDeck>(); }};
  return drivers::driver_main(argc, argv, info, drivers::run);
}
