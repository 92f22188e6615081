// SPDX-License-Identifier: MIT
// kformer-layer: runs a transformer layer forward and backward over a grid of shapes and precisions.
#include <Kokkos_Core.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "common/allocation_witness.hpp"
#include "common/command_line.hpp"
#include "common/provenance.hpp"
#include "common/stop.hpp"
#include "layer/layer_results.hpp"

namespace kformer::drivers {
namespace {

constexpr const char* kind = "layer_sweep";

LlamaConfig config_of(const ModelTable& model) {
  LlamaConfig config;
  config.hidden_size = model.hidden_size;
  config.intermediate_size = model.intermediate_size;
  config.num_attention_heads = model.num_attention_heads;
  config.num_key_value_heads = model.num_key_value_heads;
  config.head_dim = model.head_dim;
  config.rms_norm_eps = model.rms_norm_eps;
  config.rope.theta = model.rope_theta;
  if (model.rope_scaling.rope_type == RopeType::llama3)
    config.rope.scaling = {model.rope_scaling.factor, model.rope_scaling.low_freq_factor,
                           model.rope_scaling.high_freq_factor,
                           model.rope_scaling.original_max_position_embeddings};
  config.attention_bias = model.attention_bias;
  config.sliding_window = model.sliding_window;
  config.check();
  return config;
}

// The cases, with batch and sequence of the tensor file where the deck leaves them open.
std::vector<LayerCase> cases_of(const LayerSweepDeck& deck, const std::optional<LayerTensors>& tensors) {
  std::vector<LayerCase> cases = expand(deck.sweep, built_spaces());
  if (!tensors) return cases;
  for (LayerCase& c : cases) {
    const LayerShape given{c.batch ? c.batch : tensors->shape.batch,
                           c.seq_len ? c.seq_len : tensors->shape.seq_len};
    if (given.batch != tensors->shape.batch || given.seq_len != tensors->shape.seq_len)
      throw DeckError(fmt::format(
          "error: [sweep] asks for batch {} and seq_len {}, but hidden_states in {} has batch {} and "
          "seq_len {}; leave both keys out",
          given.batch, given.seq_len, deck.tensors->input.string(), tensors->shape.batch,
          tensors->shape.seq_len));
    c.batch = given.batch;
    c.seq_len = given.seq_len;
  }
  return cases;
}

bool wants_backward(const LayerSweepDeck& deck) {
  const auto& directions = deck.sweep.axes.direction;
  return std::find(directions.begin(), directions.end(), Direction::backward) != directions.end();
}

// Results of the first combination of space, dtype and impl go to the file the deck names; those of every
// further one to a file whose name says what differs. A backward case holds the output too, so it replaces the
// forward one.
class TensorOutput {
 public:
  explicit TensorOutput(const LayerSweepDeck& deck) : m_deck(deck) {}

  void write(const LayerCase& point, const HostArrays& results) {
    if (!m_deck.tensors || m_deck.tensors->output.empty() || results.empty()) return;
    const std::string combination =
        fmt::format("{}-{}-{}", point.execution_space, point.dtype, name_of(point.impl));
    if (m_first.empty()) m_first = combination;
    std::filesystem::path file = m_deck.tensors->output;
    if (combination != m_first)
      file.replace_filename(file.stem().string() + "." + combination + file.extension().string());
    if (auto& size = m_written[file]; results.size() >= size) {
      write_layer_tensors(file, results, point.dtype == "f64",
                          {{"dtype", point.dtype},
                           {"impl", std::string(name_of(point.impl))},
                           {"execution_space", point.execution_space},
                           {"software", version_line("kformer-layer")}});
      size = results.size();
    }
  }

  void report() const {
    for (const auto& [file, size] : m_written) fmt::print("tensors: {} ({} tensors)\n", file.string(), size);
  }

 private:
  const LayerSweepDeck& m_deck;
  std::string m_first;
  std::map<std::filesystem::path, std::size_t> m_written;
};

void list_cases(const LayerSweepDeck& deck, const std::vector<LayerCase>& cases) {
  fmt::print("{} case{} of '{}':\n", cases.size(), cases.size() == 1 ? "" : "s", deck.run.name);
  for (const LayerCase& c : cases)
    fmt::print("  {:<8} {:<5} {:<9} batch {} seq_len {} {}\n", c.execution_space, c.dtype, name_of(c.direction),
               c.batch, c.seq_len, name_of(c.impl));
}

void progress(std::size_t done, std::size_t of, const LayerCase& c) {
  const bool terminal = isatty(2) != 0;
  fmt::print(stderr, "{}[{}/{}] {} {} {} batch {} seq_len {} {}{}", terminal ? "\r\033[K" : "", done, of,
             c.execution_space, c.dtype, name_of(c.direction), c.batch, c.seq_len, name_of(c.impl),
             terminal ? "" : "\n");
  if (terminal) std::fflush(stderr);
}

void clear_progress() {
  if (isatty(2) != 0) fmt::print(stderr, "\r\033[K");
}

int run_cases(const LayerSweepDeck& deck, const LlamaConfig& config, const std::optional<LayerTensors>& tensors,
              const std::vector<LayerCase>& cases, ResultFile& file) {
  if (deck.profile.memory == MemoryProfile::peak) AllocationWitness::install();
  const StopRequest stop(deck.run.walltime_s);
  const auto stopping = [&] { return stop.reason().has_value(); };
  LayerResults tables(file, config);
  TensorOutput output(deck);
  std::map<std::string, MachineLimits> limits;
  for (const LayerCase& c : cases) {
    if (limits.contains(c.execution_space)) continue;
    const auto& measured = limits[c.execution_space] = measure_machine(c.execution_space);
    tables.add_machine(c.execution_space, measured);
    fmt::print("{}: matrix product {:.1f} GFLOP/s f32, {:.1f} GFLOP/s f64; copy {:.1f} GB/s\n",
               c.execution_space, measured.matmul_rate_f32 * 1e-9, measured.matmul_rate_f64 * 1e-9,
               measured.copy_bandwidth * 1e-9);
  }
  fmt::print("\n{}", table_head());
  std::fflush(stdout);

  LayerSweep sweep(deck, config, tensors ? &*tensors : nullptr);
  bool failed_check = false, failed = false, out_of_memory = false;
  std::optional<std::string> stopped;
  for (std::size_t i = 0; i < cases.size() && !stopped; ++i) {
    progress(i + 1, cases.size(), cases[i]);
    CaseResult result;
    try {
      result = sweep.run(cases[i], stopping);
    } catch (const OutOfMemory& error) {
      clear_progress();
      fmt::print(stderr, "error: {}\n", error.what());
      out_of_memory = true;
      break;
    }
    clear_progress();
    stopped = stop.reason();
    if (result.samples.seconds.empty() && stopped) break;
    failed_check |= result.status == CaseStatus::failed_check;
    failed |= result.status == CaseStatus::error;
    tables.add_case(result, limits[cases[i].execution_space]);
    output.write(cases[i], sweep.last_results());
    fmt::print("{}", table_row(result, limits[cases[i].execution_space]));
    std::fflush(stdout);
  }

  if (stopped || out_of_memory) {
    file.checkpoint();
    fmt::print("\nstopped ({}); the finished cases are in {}\n", stopped.value_or("out of memory"),
               file.part_path().string());
    return out_of_memory ? exit_out_of_memory : exit_stopped;
  }
  file.finish();
  fmt::print("\n");
  output.report();
  fmt::print("results: {}\n", file.path().string());
  return failed_check ? exit_check : failed ? exit_failure : exit_ok;
}

std::string environment_value(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int run(const CommandLine& line) {
  LayerSweepDeck deck = load_layer_deck(line.deck);
  for (const std::string& warning : deck.record.warnings) fmt::print(stderr, "{}\n", warning);
  if (line.print_deck) {
    fmt::print("{}", deck.record.resolved);
    return exit_ok;
  }
  std::optional<LayerTensors> tensors;
  if (deck.tensors) tensors = read_layer_tensors(deck.tensors->input, deck.model, wants_backward(deck));
  const LlamaConfig config = config_of(deck.model);
  const std::vector<LayerCase> cases = cases_of(deck, tensors);
  if (line.dry_run) {
    list_cases(deck, cases);
    return exit_ok;
  }
  const std::string path =
      output_file_name(deck.output.file, {deck.run.name, kind, utc_now(), environment_value("SLURM_JOB_ID")});
  ResultFile file(path, {deck.output.overwrite, static_cast<int>(deck.output.compression)});

  std::vector<std::string> arguments{line.all.front()};
  arguments.insert(arguments.end(), line.kokkos.begin(), line.kokkos.end());
  if (deck.run.threads > 0) arguments.push_back("--kokkos-num-threads=" + std::to_string(deck.run.threads));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  const Kokkos::ScopeGuard kokkos(argc, argv.data());

  write_provenance(file, kind, deck.run, deck.record, line.deck.overrides, line.all);
  fmt::print("{}\n{}", version_line("kformer-layer"), kokkos_summary());
  return run_cases(deck, config, tensors, cases, file);
}

}  // namespace
}  // namespace kformer::drivers

int main(int argc, char* argv[]) {
  using namespace kformer;
  const drivers::DriverInfo info{"kformer-layer",
                                 "Runs a transformer layer forward and backward over a grid of shapes and "
                                 "precisions, and writes time, memory and accuracy to HDF5.",
                                 [] { return describe_deck_markdown<LayerSweepDeck>(); },
                                 [] { return describe_deck_json_schema<LayerSweepDeck>(); }};
  return drivers::driver_main(argc, argv, info, drivers::run);
}
