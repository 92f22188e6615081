// SPDX-License-Identifier: MIT
// kformer-generate: a checkpoint continues prompts.
#include <fmt/format.h>

#include <utility>

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
#include "sweep/limit_samples.hpp"

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
}

int run_deck(const GenerateDeck& deck, const std::string& space, ResultFile& file) {
  if (deck.profile.memory == MemoryProfile::peak) measure::AllocationWitness::install();
  const StopRequest stop(deck.run.walltime_s);
  // Before the machine is measured, which takes longer.
  GenerationPlan plan(deck, space);
  plan.require_memory();
  if (const std::string note = plan.note(); !note.empty()) fmt::print(stderr, "note: {}\n", note);
  GenerateResults results(file, deck, space);
  const measure::MachineLimits limits = measure::machine_limits(space);
  results.add_machine(limits);
  fmt::print(stderr, "{}\n", measure::describe(space, limits));
  LimitSamples samples;
  const auto generator = make_text_generator(deck, space, std::move(plan));
  return run_prompts({&deck, generator.get(), &results, [&] { return stop.reason(); },
                      [&](double bytes) { return samples.now(space, DType::f32, bytes); }},
                     file);
}

// A model that can hold conversations is asked; another one continues the text.
std::string deck_of_call(const ModelCall& call) {
  const std::filesystem::path path = checkpoint_of(call.model);
  bool chat = false;
  try {
    const Checkpoint checkpoint = open_checkpoint({.path = path});
    ChatTemplate::recognise(open_tokenizer({}, checkpoint)->chat_template());
    chat = true;
  } catch (const Error&) {  // The run says what is wrong with the files.
  }
  return generate_deck_of(path, call.prompts, chat);
}

int run(const CommandLine& line, const GenerateDeck& deck) {
  const std::string space = execution_space_of(deck.generate, measure::built_spaces());
  if (line.dry_run) {
    fmt::print("{}", plan_of(deck));
    // The code that runs counts the memory, and it needs the execution space for the sizes of workspaces.
    require_device();
    const auto kokkos = start_kokkos(line.all.front(), line.kokkos, deck.run.threads);
    const GenerationPlan plan(deck, space);
    fmt::print("{}", plan.text());
    if (const std::string note = plan.note(); !note.empty()) fmt::print("note: {}\n", note);
    plan.require_memory();
    return exit_ok;
  }
  Session session(line, program, kind, deck.run, deck.output, deck.record, stderr);
  return run_deck(deck, space, session.file());
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  drivers::listen_to_signals();
  return drivers::driver_main(argc, argv, drivers::program, drivers::summary, load_generate_deck, drivers::run,
                              {.prompts = true,
                               .results = {drivers::kind, drivers::declare_results},
                               .deck_of_call = drivers::deck_of_call});
}
