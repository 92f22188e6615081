// SPDX-License-Identifier: MIT
// kformer-generate: a checkpoint continues prompts.
#include <fmt/format.h>

#include <array>
#include <set>
#include <utility>

#include "app/memory/scratch.hpp"
#include "app/rank_results.hpp"
#include "app/say.hpp"
#include "app/session.hpp"
#include "app/start_kokkos.hpp"
#include "app/stop.hpp"
#include "decks/models/model_calls.hpp"
#include "generate/figures.hpp"
#include "generate/generation_plan.hpp"
#include "generate/prompt_loop.hpp"
#include "kformer/text/chat_template.hpp"
#include "language_model/model_files.hpp"
#include "measure/allocation_witness.hpp"
#include "measure/spaces.hpp"
#include "sweep/check_kernels.hpp"
#include "sweep/limit_samples.hpp"
#include "sweep/noise.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* program = "kformer-generate";
constexpr const char* kind = "generate";
constexpr const char* summary =
    "Continues prompts with a checkpoint, and writes text, log-probabilities, time and memory to HDF5.";

void declare_results(ResultFile& file) {
  GenerateDeck deck;
  deck.generate.last_logits = true;
  const GenerateResults tables(file, deck, {});
  const RankResults ranks(file);
}

// The standard output of ranks that write nothing is no file.
std::FILE* log_of(const Ranks& ranks) { return ranks.is_first() ? stderr : stdout; }

// The ranks that divide the model; null without others.
std::shared_ptr<Communicator> tensor_ranks(const GenerateDeck& deck, const Ranks& ranks) {
  if (ranks.size() > 1) return ranks.world();
  // Of those that are not there the last one needs most: it has no word less than another.
  const int size = deck.parallel ? static_cast<int>(deck.parallel->tensor) : 1;
  return size > 1 ? std::make_shared<LoneCommunicator>(size - 1, size) : nullptr;
}

// On the space of the run, and on that of its check.
std::size_t reserve_scratch_of(const GenerationPlan& plan, const std::string& space) {
  std::size_t bytes = 0;
  for (const std::string& one : std::set{space, reference_space(space)})
    bytes += reserve_scratch(one, plan.scratch_per_thread());
  return bytes;
}

int run_deck(const GenerateDeck& deck, const std::string& space, ResultFile& file, Ranks& ranks) {
  if (deck.profile.memory == MemoryProfile::peak) measure::AllocationWitness::install();
  const StopRequest stop(deck.run.walltime_s);
  NoiseWatch noise;
  // Before the machine is measured, which takes longer.
  GenerationPlan plan(deck, space, tensor_ranks(deck, ranks));
  if (ranks.size() > 1) ranks.require_same(plan.contents());
  plan.require_memory(ranks.free_memory(space));
  const std::size_t scratch = reserve_scratch_of(plan, space);
  std::FILE* const log = log_of(ranks);
  if (const std::string note = plan.note(); !note.empty()) say(log, "note: {}\n", note);
  GenerateResults results(file, deck, space);
  RankResults rank_results(file);
  if (deck.profile.machine_limits)
    noise.begin({space}, [&](const auto&, const auto& limits) {
      results.add_machine(limits);
      say(log, "{}\n", measure::describe(space, limits));
    });
  LimitSamples samples;
  const auto ledger = Ledger::create();
  const auto forecast = plan.forecast();
  const auto generator = make_text_generator(deck, space, std::move(plan), ledger);
  PromptLoop loop{.deck = &deck,
                  .generator = generator.get(),
                  .results = &results,
                  .stop = [&] { return ranks.agreed(stop.reason()); },
                  .limits = [&](double bytes) { return samples.now(space, DType::f32, bytes); },
                  .together = ranks.size() > 1,
                  .log = log};
  if (loop.together)
    loop.finish = [&] {
      rank_results.add_memory(ranks, space, *forecast, *ledger);
      rank_results.add_communication(ranks, std::array<const Communicator*, 1>{ranks.world().get()});
    };
  const int code = run_prompts(loop, file);
  say(log, "{}", scratch_text(scratch));
  // Several ranks are a load for each other.
  if (code == exit_ok && ranks.size() == 1) say(log, "{}", noise.end());
  // A rank that fails ends the others, also the one that writes.
  ranks.barrier("the end");
  return code;
}

// Whether a model can hold conversations. Not one that cannot be read: the run says why.
bool holds_conversations(const std::filesystem::path& path) {
  try {
    const Checkpoint checkpoint = open_checkpoint({.path = path});
    ChatTemplate::recognise(open_tokenizer({}, checkpoint)->chat_template());
    return true;
  } catch (const Error&) {
    return false;
  }
}

// A model that can hold conversations is asked; another one continues the text.
std::string deck_of_call(const ModelCall& call) {
  const std::filesystem::path path = checkpoint_of(call.model);
  return generate_deck_of(path, call.prompts, holds_conversations(path));
}

int run(const CommandLine& line, const GenerateDeck& deck, Ranks& ranks) {
  const GenerateParallelTable parallel = deck.parallel.value_or(GenerateParallelTable{});
  ranks.require(parallel.tensor, deck.parallel ? fmt::format("'parallel.tensor' = {}", parallel.tensor) : "",
                "parallel.tensor", program, line.dry_run);
  const std::string space = execution_space_of(deck.generate, measure::built_spaces());
  if (line.resume && ranks.size() > 1)
    throw DeckError(fmt::format(
        "--resume goes on with the generations of a run of one rank, but {} ranks were started; leave it "
        "out, and start anew with --overwrite",
        ranks.size()));
  Ranks::require_backend(parallel.backend, "parallel.backend", space);
  ranks.begin(parallel.timeout_s, deck.record.resolved);
  if (line.dry_run) {
    fmt::print("{}", plan_of(deck));
    // The code that runs counts the memory, and it needs the execution space for the sizes of workspaces.
    require_device();
    const auto kokkos = start_kokkos(line.all.front(), line.kokkos, deck.run.threads);
    const GenerationPlan plan(deck, space, tensor_ranks(deck, ranks));
    fmt::print("{}", plan.text());
    if (const std::string note = plan.note(); !note.empty()) fmt::print("note: {}\n", note);
    ranks.find_memory(space);
    plan.require_memory(ranks.free_memory(space));
    return exit_ok;
  }
  Session session(line, program, kind, deck.run, deck.output, deck.record, log_of(ranks), ranks.is_first());
  ranks.connect_devices(parallel.backend);
  ranks.find_memory(space);
  return run_deck(deck, space, session.file(), ranks);
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  drivers::listen_to_signals();
  return drivers::main_of_ranks(argc, argv, [&](drivers::Ranks& ranks) {
    return drivers::driver_main(argc, argv, drivers::program, drivers::summary, load_generate_deck,
                                [&](const drivers::CommandLine& line, const GenerateDeck& deck) {
                                  return drivers::run(line, deck, ranks);
                                },
                                {.resumes = drivers::Resumes::finished_cases,
                                 .prompts = true,
                                 .results = {drivers::kind, drivers::declare_results},
                                 .deck_of_call = drivers::deck_of_call});
  });
}
