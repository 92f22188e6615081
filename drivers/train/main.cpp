// SPDX-License-Identifier: MIT
// kformer-train: a model learns from a data set.
#include <optional>

#include "app/session.hpp"
#include "app/start_kokkos.hpp"
#include "measure/spaces.hpp"
#include "train/training.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* program = "kformer-train";
constexpr const char* summary =
    "Trains a model on text, and writes losses, texts, time and memory to HDF5, and the model to a folder.";

int run(const CommandLine& line, const TrainDeck& deck) {
  const std::string space = execution_space_of(deck.run, measure::built_spaces());
  if (line.dry_run) {
    // Memory is counted by the code that runs, which asks its space for sizes of workspaces.
    require_device();
    const auto kokkos = start_kokkos(line.all.front(), line.kokkos, deck.run.threads);
    print_training_plan(deck, space);
    return exit_ok;
  }
  // A run that continues another one replaces what that one left.
  OutputTable output = deck.output;
  output.overwrite |= deck.checkpoint && deck.checkpoint->resume;
  std::optional<ModelFolder> folder;
  if (!deck.output.model.empty()) folder.emplace(deck.output.model, output.overwrite);
  Session session(line, program, "train", deck.run, output, deck.record);
  return train(deck, space, folder ? &*folder : nullptr, session.file());
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  return drivers::driver_main(argc, argv, drivers::program, drivers::summary, load_train_deck, drivers::run);
}
