// SPDX-License-Identifier: MIT
// kformer-perf-attention: attention timed with cold caches, beside what the machine could do at best.
#include <benchmark/benchmark.h>

#include <exception>
#include <iostream>
#include <vector>

#include "attention_run.hpp"
#include "attention_server.hpp"
#include "common/provenance.hpp"
#include "limit_samples.hpp"

namespace {

using namespace kformer;
using namespace kformer::perf;

// Google Benchmark calls a benchmark once per repetition: operands stay in memory until the next case.
class Benchmarks {
 public:
  void run(benchmark::State& state, const AttentionCase& c) {
    if (c.name != m_name) {
      m_run.reset();
      m_name = c.name;
      try {
        m_run = make_attention_run(c);
      } catch (const std::exception& error) {  // refused, or too large for this machine: the others go on
        m_error = error.what();
      }
    }
    if (!m_run) return state.SkipWithError(m_error.c_str());
    const double limit_before = m_limits.of(c);
    double total = 0;
    for (auto _ : state) {
      const double seconds = m_run->seconds();
      state.SetIterationTime(seconds);
      total += seconds;
    }
    const double limit = 0.5 * (limit_before + m_limits.of(c));
    const double calls_per_second = static_cast<double>(state.iterations()) / total;
    const double flops = c.flops() * calls_per_second, bytes = c.forward_bytes() * calls_per_second;
    state.SetLabel(m_run->kernel());
    state.counters["GFLOP/s"] = flops * 1e-9;
    if (c.is_decode()) {
      state.counters["GB/s"] = bytes * 1e-9;
      state.counters["% of copy"] = 100 * bytes / limit;
    } else {
      state.counters["% of peak"] = 100 * flops / limit;
    }
  }

 private:
  LimitSamples m_limits;
  std::string m_name, m_error;
  std::unique_ptr<AttentionRun> m_run;
};

int run_benchmarks(const std::vector<AttentionCase>& cases, std::vector<char*> arguments) {
  // Ahead of the command line's own, which therefore win.
  std::string repetitions = "--benchmark_repetitions=5";
  arguments.insert(arguments.begin() + 1, repetitions.data());
  int argc = static_cast<int>(arguments.size());
  benchmark::Initialize(&argc, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(argc, arguments.data())) return 2;
  benchmark::AddCustomContext("kformer", drivers::version_line("kformer-perf-attention"));
  benchmark::AddCustomContext("threads", std::to_string(Space().concurrency()));
  benchmark::AddCustomContext("peak_isa", drivers::host_fma().instructions);
  Benchmarks benchmarks;
  for (const auto& c : cases)
    benchmark::RegisterBenchmark(c.name.c_str(), [&](benchmark::State& state) { benchmarks.run(state, c); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  const std::size_t ran = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return ran > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);  // takes its own arguments away
  std::vector<char*> arguments(argv, argv + argc);
  const auto take = [&](std::string_view option) {
    return std::erase_if(arguments, [&](const char* argument) { return argument == option; }) > 0;
  };
  const auto cases = take("--smoke") ? attention_smoke_cases() : attention_cases();
  if (!take("--serve")) return run_benchmarks(cases, arguments);
  serve(cases, std::cin, std::cout);
  return 0;
}
