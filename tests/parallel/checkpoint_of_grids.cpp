// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <filesystem>

#include "io/scratch_directory.hpp"
#include "kformer/load/load_weights.hpp"
#include "kformer/load/training_checkpoint.hpp"
#include "kformer/parallel/rank_grid.hpp"
#include "parallel/tensor_runs.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

// The process that started all ranks.
long parent_process() { return ::getppid(); }

// What a grid of ranks wrote any other continues from, and has the same weights and states. Files are exchanged through a
// folder.
void check_that_any_grid_continues(LlamaConfig config, const TrainerOptions& alone_options) {
  const auto ranks = world();
  config.num_hidden_layers = std::max(3, ranks->size());
  const auto ledger = Ledger::create();
  Collectives<Exec> all(ranks, {}, *ledger);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("kformer-tensor-parallel-" + std::to_string(parent_process()));
  const auto options_on = [&](const RankGrid& grid, ZeroStage zero) {
    TrainerOptions options = alone_options;
    options.layer.tensor = grid.along(GridAxis::tensor);
    options.parallel = {.ranks = grid.along(GridAxis::data), .zero = zero};
    options.pipeline.ranks = grid.pipeline();
    return options;
  };
  std::vector<RankGrid> grids;
  for (int tensor = 1; tensor <= ranks->size(); ++tensor)
    if (ranks->size() % tensor == 0)
      for (const bool stages : {false, true}) {
        const int rest = ranks->size() / tensor;
        if (!stages || rest > 1)
          grids.emplace_back(
              ranks, GridIndex{.data = stages ? 1 : rest, .tensor = tensor, .pipeline = stages ? rest : 1});
      }
  for (const RankGrid& from : grids)
    for (const ZeroStage zero : {ZeroStage::none, ZeroStage::optimizer}) {
      const Run<bf16> run(options_on(from, zero), config, 2 * from.place().data % 6, 2);
      {
        CheckpointWriter<Exec> writer({.folder = folder,
                                       .background = false,
                                       .rank = ranks->rank(),
                                       .ranks = ranks->size(),
                                       .agree = [&] { all.barrier(Exec()); }},
                                      run.trainer.shard(), *ledger);
        all.barrier(Exec());  // the first rank deletes what earlier runs left
        writer.snapshot(Exec(), steps, "text");
        writer.finish();
      }
      const TrainingCheckpoint checkpoint = newest_good_checkpoint(folder).value();
      // One rank alone has the whole arrays, and so tells what every part must be.
      Trainer<Exec, bf16> alone(config, alone_options, *ledger);
      alone.prepare(Exec());
      checkpoint.restore(Exec(), std::span<const NamedArray>(alone.arrays()), *ledger);
      std::map<std::string, std::vector<unsigned char>> whole;
      for (const NamedArray& a : alone.arrays()) whole[a.name] = bits_of(a.array);
      for (const NamedArray& a : run.trainer.arrays())
        BOOST_TEST((bits_of(a.array) == bits_of_part(whole.at(a.name), a)), a.name);
      for (const RankGrid& to : grids)
        for (const ZeroStage then : {ZeroStage::none, ZeroStage::optimizer}) {
          Trainer<Exec, bf16> next(config, options_on(to, then), *ledger);
          next.prepare(Exec());
          checkpoint.restore(Exec(), std::span<const NamedArray>(next.arrays()), *ledger,
                             next.stages() != nullptr);
          for (const NamedArray& a : next.arrays())
            BOOST_TEST((bits_of(a.array) == bits_of_part(whole.at(a.name), a)), a.name);
        }
      all.barrier(Exec());
      if (ranks->rank() == 0) std::filesystem::remove_all(folder);
      all.barrier(Exec());
    }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_of_grids)

BOOST_AUTO_TEST_CASE(any_grid_continues_from_a_checkpoint) {
  check_that_any_grid_continues(model(kinds[2], world()->size()), options_of(kinds[2]));
}

BOOST_AUTO_TEST_CASE(any_grid_continues_from_a_checkpoint_of_adapters) {
  TrainerOptions options = options_of(kinds[2]);
  options.layer.lora = LoraConfig::all(3, 5);
  options.layer.lora.magnitudes = true;
  check_that_any_grid_continues(model(kinds[2], world()->size()), options);
}

BOOST_AUTO_TEST_CASE(any_grid_continues_from_a_checkpoint_of_8_bit_states) {
  TrainerOptions options = options_of(kinds[2]);
  options.optimizer.states = OptimizerStates::eight_bit;
  check_that_any_grid_continues(block_model(kinds[2], world()->size()), options);
}

// The file is that of one rank.
BOOST_AUTO_TEST_CASE(the_weights_of_divided_models_are_written_whole) {
  const auto ranks = world();
  const auto ledger = Ledger::create();
  Collectives<Exec> all(ranks, {}, *ledger);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("kformer-divided-weights-" + std::to_string(parent_process()));
  if (ranks->rank() == 0) std::filesystem::create_directories(folder);
  all.barrier(Exec());
  for (const Kind& kind : kinds) {
    const LlamaConfig config = model(kind, ranks->size());
    const ModelInputs inputs = ModelInputs::random(config, {1, 1});
    const auto filled = [&](const std::shared_ptr<Communicator>& tensor) {
      auto m = std::make_unique<LlamaModel<Exec, bf16>>(config, LayerShape{1, 1},
                                                        LayerOptions{.tensor = tensor}, *ledger);
      for (const Parameter& p : m->parameters())
        write_parameter<bf16>(p.weight, part_of_array(inputs.weights.at(p.name), p));
      return m;
    };
    const auto divided = filled(ranks);
    const auto parameters = divided->parameters();
    const std::span<const Parameter> parts(parameters);
    if (ranks->size() == 1) {
      save_weights(Exec(), parts, folder / "divided", *ledger);
    } else {
      const WeightRanks<Exec> of{.tensor = divided->tensor_ranks()};
      const auto staging =
          ledger->allocate<Exec::memory_space>(MemoryClass::io, "staging", gather_bytes(parts, of));
      save_weights(Exec(), parts, folder / "divided", *ledger, of, staging);
    }
    if (ranks->rank() == 0) {
      const auto alone = filled(nullptr);
      const auto whole = alone->parameters();
      save_weights(Exec(), std::span<const Parameter>(whole), folder / "whole", *ledger);
      BOOST_TEST((contents_of(folder / "divided") == contents_of(folder / "whole")), kind.name);
    }
    all.barrier(Exec());
  }
  if (ranks->rank() == 0) std::filesystem::remove_all(folder);
}

// The files are those of one rank, and each rank reads its parts.
BOOST_AUTO_TEST_CASE(the_adapters_of_divided_models_are_written_whole_and_read) {
  const auto ranks = world();
  const auto ledger = Ledger::create();
  Collectives<Exec> all(ranks, {}, *ledger);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("kformer-divided-adapters-" + std::to_string(parent_process()));
  if (ranks->rank() == 0)
    for (const char* name : {"divided", "whole"}) std::filesystem::create_directories(folder / name);
  all.barrier(Exec());
  for (const bool magnitudes : {false, true}) {
    const LlamaConfig config = model(kinds[0], ranks->size());
    LoraConfig lora = LoraConfig::all(3, 6);
    lora.magnitudes = magnitudes;
    const ModelInputs inputs = ModelInputs::random(config, {1, 1}, 9, lora);
    const auto adapted = [&](const std::shared_ptr<Communicator>& tensor) {
      return std::make_unique<LlamaModel<Exec, bf16>>(config, LayerShape{1, 1},
                                                      LayerOptions{.lora = lora, .tensor = tensor}, *ledger);
    };
    const auto filled = [&](const std::shared_ptr<Communicator>& tensor) {
      auto m = adapted(tensor);
      for (const Parameter& p : m->adapters())
        write_parameter<bf16>(p.weight, part_of_array(inputs.weights.at(p.name), p));
      return m;
    };
    const AdapterDescription description{.base_model = "base"};
    const auto divided = filled(ranks), read = adapted(ranks);
    const auto parts = divided->adapters();
    const WeightRanks<Exec> of{.tensor = divided->tensor_ranks()};
    const auto staging = ledger->allocate<Exec::memory_space>(
        MemoryClass::io, "staging", gather_bytes(std::span<const Parameter>(parts), of));
    save_adapter(Exec(), std::span<const Parameter>(parts), lora, description,
                 ranks->rank() == 0 ? folder / "divided" : folder / "nowhere", *ledger, of, staging);
    if (ranks->rank() == 0) {
      const auto alone = filled(nullptr);
      const auto whole = alone->adapters();
      save_adapter(Exec(), std::span<const Parameter>(whole), lora, description, folder / "whole", *ledger);
      for (const char* name : {adapter_weights_name, adapter_config_name})
        BOOST_TEST((contents_of(folder / "divided" / name) == contents_of(folder / "whole" / name)), name);
    }
    all.barrier(Exec());
    const auto empty = read->adapters();
    const auto checkpoint = AdapterCheckpoint::open(folder / "divided", config);
    load_adapter(Exec(), checkpoint, std::span<const Parameter>(empty), *ledger);
    for (std::size_t i = 0; i < parts.size(); ++i)
      BOOST_TEST((bits_of(empty[i].weight) == bits_of(parts[i].weight)), parts[i].name);
    const auto merged = [&](const std::shared_ptr<Communicator>& tensor) {
      LlamaModel<Exec, double> m(config, {1, 1}, {.tensor = tensor}, *ledger);
      for (const Parameter& p : m.parameters())
        write_parameter<double>(p.weight, part_of_array(inputs.weights.at(p.name), p));
      const auto of_adapter = ledger->allocate<Exec::memory_space>(
          MemoryClass::io, "staging", merge_staging_bytes(checkpoint, config, DType::f64));
      merge_adapter(Exec(), checkpoint, m.weights(), of_adapter, *ledger, m.tensor_ranks());
      Numbers numbers;
      add_numbers(m.parameters(), numbers);
      return numbers;
    };
    check_parts(merged(ranks), merged(nullptr));
    all.barrier(Exec());
    if (ranks->size() > 1 && !magnitudes)
      check_error<NotSupported>(
          [&] {
            save_gguf_adapter(Exec(), std::span<const Parameter>(parts), lora, config, folder / "gguf",
                              *ledger);
          },
          "kformer::save_gguf_adapter: this rank has a part of model.layers.0.self_attn.q_proj.lora_B.weight "
          "alone; write the adapter with save_adapter, and convert it");
  }
  if (ranks->rank() == 0) std::filesystem::remove_all(folder);
}

// The same of a tied model whose layers ranks divide, and in a grid whose weights, too.
BOOST_AUTO_TEST_CASE(the_weights_of_all_stages_are_written) {
  const auto ranks = world();
  const auto ledger = Ledger::create();
  Collectives<Exec> all(ranks, {}, *ledger);
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("kformer-weights-of-stages-" + std::to_string(parent_process()));
  if (ranks->rank() == 0) std::filesystem::create_directories(folder);
  all.barrier(Exec());
  for (const Kind& kind : {kinds[0], kinds[1]})
    for (const int tensor : {1, 2}) {
      if (ranks->size() % tensor != 0 || ranks->size() / tensor < 2) continue;
      const RankGrid grid(ranks, {.tensor = tensor, .pipeline = ranks->size() / tensor});
      LlamaConfig config = model(kind, tensor);
      config.num_hidden_layers = 2 * grid.shape().pipeline + 1;
      TrainerOptions options = options_of(kind);
      Run<bf16> alone(options, config, 0, 1);
      options.layer.tensor = grid.along(GridAxis::tensor);
      options.pipeline = {.ranks = grid.pipeline(), .schedule = PipelineSchedule::interleaved, .parts = 2};
      Run<bf16> together(options, config, 0, 1);
      // The weights of one rank, so that not even rounding differs.
      const auto whole = alone.weights();
      for (const Parameter& p : parameters_of(together.trainer)) {
        HostTensor<double> values({static_cast<std::int64_t>(whole.at(p.name).size())});
        values.values() = whole.at(p.name);
        write_parameter<bf16>(p.weight, part_of_array(values, p));
      }
      LayerOptions described = options.layer;
      described.mode = LayerMode::inference;
      const LlamaModel<Exec, bf16> description(config, {1, 1}, described, *Ledger::create(Ledger::Mode::count));
      const WeightRanks<Exec> of{.tensor = together.trainer.model().tensor_ranks(),
                                 .stages = together.trainer.stages(),
                                 .all = description.parameters()};
      const auto parameters = parameters_of(together.trainer);
      const std::span<const Parameter> own(parameters);
      const auto staging =
          ledger->allocate<Exec::memory_space>(MemoryClass::io, "staging", gather_bytes(own, of));
      save_weights(Exec(), own, folder / "divided", *ledger, of, staging);
      if (ranks->rank() == 0) {
        const auto expected = parameters_of(alone.trainer);
        save_weights(Exec(), std::span<const Parameter>(expected), folder / "whole", *ledger);
        BOOST_TEST((contents_of(folder / "divided") == contents_of(folder / "whole")), kind.name);
      }
      all.barrier(Exec());
    }
  if (ranks->rank() == 0) std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
