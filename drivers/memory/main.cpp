// SPDX-License-Identifier: MIT
// kformer-memory: forecasts the memory of a model over a grid of batches, contexts and types.
#include <fmt/format.h>

#include <algorithm>

#include "app/session.hpp"
#include "app/stop.hpp"
#include "decks/models/model_calls.hpp"
#include "measure/memory_available.hpp"
#include "measure/spaces.hpp"
#include "memory/plan.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* program = "kformer-memory";
constexpr const char* kind = "memory_plan";
constexpr const char* summary =
    "Estimates memory use without allocating, over a grid of batches, contexts and types.";

std::string name_of_case(const MemoryCase& c) {
  return fmt::format(
      "{:<8} {:<8} {:<5} weights {} kv_cache {} prefill_chunk {} batch {} context {} recompute {}",
      c.execution_space, name_of(c.purpose), name_of(c.dtype), name_of(c.weights), name_of(c.kv_cache),
      c.prefill_chunk, c.batch, c.context, name_of(c.recompute));
}

void declare_results(ResultFile& file) { const PlanResults tables(file, {}); }

int run(const CommandLine& line, const MemoryPlanDeck& deck) {
  const auto planner = make_memory_planner(deck);
  const std::vector<MemoryCase> cases = expand(deck.sweep, planner->model(), measure::built_spaces());
  if (line.dry_run) return list_cases(deck.run, cases, name_of_case);
  Session session(line, program, kind, deck.run, deck.output, deck.record, log_beside(line.format));
  const auto there_is = [&](const std::string& space) -> std::optional<std::size_t> {
    // A plan may be for another machine, which has more than this one.
    const std::optional<std::size_t> budget = deck.memory.budget_bytes();
    if (deck.plan.device_bytes == 0) return budget ? budget : measure::memory_available(space);
    const auto device = static_cast<std::size_t>(deck.plan.device_bytes);
    return budget ? std::min(*budget, device) : device;
  };
  const StopRequest stop(deck.run.walltime_s);
  return run_plan(*planner, deck, cases, there_is, [&] { return stop.reason(); }, session.file(), line.format);
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  drivers::listen_to_signals();
  return drivers::driver_main(argc, argv, drivers::program, drivers::summary, load_memory_plan_deck,
                              drivers::run,
                              {.table = true,
                               .results = {drivers::kind, drivers::declare_results},
                               .deck_of_call = [](const drivers::ModelCall& call) {
                                 return memory_deck_of(call.model, call.overrides);
                               }});
}
