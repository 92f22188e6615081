// SPDX-License-Identifier: MIT
// kformer-train: a model learns from a data set.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "app/ranks.hpp"
#include "app/say.hpp"
#include "app/session.hpp"
#include "app/start_kokkos.hpp"
#include "app/stop.hpp"
#include "kformer/core/error.hpp"
#include "measure/spaces.hpp"
#include "merge/logit_difference.hpp"
#include "objective/objective.hpp"
#include "train/checkpoint_lock.hpp"
#include "train/train_results.hpp"
#include "train/training.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* program = "kformer-train";
constexpr const char* kind = "train";
constexpr const char* summary =
    "Trains a model on text, and writes losses, texts, time and memory to HDF5, and the model to a folder.";

// Nothing, if the run starts from its beginning. All ranks find the same, and one says it.
std::optional<TrainingCheckpoint> checkpoint_to_continue(const TrainDeck& deck, bool first) {
  if (!deck.checkpoint || !deck.checkpoint->resume) return {};
  return newest_good_checkpoint(deck.checkpoint->folder, [first](const std::string& reason) {
    if (first) say(stderr, "warning: {}\n", reason);
  });
}

std::optional<ModelFolder> folder_of(const char* key, const std::string& folder, const CommandLine& line,
                                     const TrainDeck& deck, bool replace) {
  if (folder.empty()) return {};
  const std::filesystem::path here = std::filesystem::current_path();
  std::vector<std::pair<std::filesystem::path, std::string>> others{
      {std::filesystem::absolute(line.deck.path).parent_path(), "the folder of the deck"},
      {here, "the working directory"}};
  if (deck.checkpoint) others.emplace_back(here / deck.checkpoint->folder, "the folder of the checkpoints");
  return ModelFolder(key, folder, replace, others);
}

void require_own_folders(const OutputFolders& folders) {
  if (folders.model && folders.adapter && folders.model->path() == folders.adapter->path())
    throw FileError(fmt::format("output.adapter '{}' is the folder of output.model, too; name one for each",
                                folders.adapter->path().string()));
}

// The keys that are more than 1, or `data`.
std::string grid_text(const ParallelTable& t) {
  std::string text;
  for (const auto& [key, ranks] :
       {std::pair{"data", t.data}, {"context", t.context}, {"tensor", t.tensor}, {"pipeline", t.pipeline}})
    if (ranks > 1 || (t.ranks() == 1 && text.empty()))
      text += fmt::format("{}'parallel.{}' = {}", text.empty() ? "" : " x ", key, ranks);
  return text;
}

void declare_results(ResultFile& file) {
  std::vector<FigureColumn> figures = preference_figures();
  std::ranges::move(policy_figures({"reward_*"}), std::back_inserter(figures));
  const TrainResults tables(file, {}, figures);
  write_difference(file, "merged", {});
  file.group("merged").when("with [adapter] and output.model");
}

int run(const CommandLine& line, const TrainDeck& deck, Ranks& ranks) {
  ranks.require(deck.parallel ? deck.parallel->ranks() : 1, deck.parallel ? grid_text(*deck.parallel) : "",
                "parallel.data", program, line.dry_run);
  const std::string space = execution_space_of(deck.run, measure::built_spaces());
  std::optional<CheckpointLock> lock;
  const ParallelTable parallel = deck.parallel.value_or(ParallelTable{});
  Ranks::require_backend(parallel.backend, "parallel.backend", space);
  ranks.begin(parallel.timeout_s, deck.record.resolved);
  if (deck.checkpoint && !line.dry_run && ranks.is_first()) lock.emplace(deck.checkpoint->folder);
  // A run that continues another one replaces what that one left.
  auto checkpoint = checkpoint_to_continue(deck, ranks.is_first());
  OutputTable output = deck.output;
  output.overwrite |= checkpoint.has_value();
  OutputFolders folders;
  if (ranks.is_first())
    folders = {folder_of("model", deck.output.model, line, deck, output.overwrite),
               folder_of("adapter", deck.output.adapter, line, deck, output.overwrite)};
  require_own_folders(folders);
  if (line.dry_run) {
    // The code that runs counts the memory, and it needs the execution space for the sizes of workspaces.
    require_device();
    const auto kokkos = start_kokkos(line.all.front(), line.kokkos, deck.run.threads);
    ranks.find_memory(space);
    print_training_plan(deck, space, ranks);
    return exit_ok;
  }
  for (auto* folder : {&folders.model, &folders.adapter})
    if (*folder) (*folder)->try_out();
  Session session(line, program, kind, deck.run, output, deck.record, stdout, ranks.is_first());
  ranks.connect_devices(parallel.backend);
  ranks.find_memory(space);
  return train(deck, space, folders, std::move(checkpoint), session.file(), ranks);
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  drivers::listen_to_signals();
  return drivers::main_of_ranks(argc, argv, [&](drivers::Ranks& ranks) {
    const auto run = [&](const drivers::CommandLine& line, const TrainDeck& deck) {
      return drivers::run(line, deck, ranks);
    };
    return drivers::driver_main(
        argc, argv, drivers::program, drivers::summary, load_train_deck, run,
        {.resumes = drivers::Resumes::from_checkpoint, .results = {drivers::kind, drivers::declare_results}});
  });
}
