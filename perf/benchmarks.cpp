// SPDX-License-Identifier: MIT
#include "benchmarks.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <exception>

#include "limit_samples.hpp"
#include "measure/provenance.hpp"

namespace kformer::perf {

namespace {

const char* share_name(Limit limit) {
  static constexpr const char* names[] = {"% of peak", "% of bandwidth", "% of limit"};
  return names[static_cast<int>(limit)];
}

// Google Benchmark calls a benchmark once per repetition: operands stay in memory until the next case.
class Benchmarks {
 public:
  explicit Benchmarks(std::size_t rotated) : m_rotated(rotated) {}

  void run(benchmark::State& state, const Case& c) {
    if (!prepare(c)) return state.SkipWithError(m_error.c_str());
    const double least_before = m_limits.least_seconds(c);
    const std::int64_t launches = m_run->launches();
    const auto count = static_cast<double>(launches);
    double total = 0, blas_total = 0;
    while (state.KeepRunningBatch(launches)) {
      const double seconds = count * m_run->seconds();
      state.SetIterationTime(seconds);
      total += seconds;
      blas_total += count * m_run->blas_seconds().value_or(0);
    }
    const double least = std::min(least_before, m_limits.least_seconds(c));
    const double seconds = total / static_cast<double>(state.iterations());
    state.SetLabel(m_run->kernel());
    if (c.flops > 0) state.counters["GFLOP/s"] = 1e-9 * c.flops / seconds;
    if (c.limit == Limit::memory) state.counters["GB/s"] = 1e-9 * c.bytes / seconds;
    state.counters[share_name(c.limit)] = 100 * least / seconds;
    if (!on_host) state.counters["launches"] = count;
    if (blas_total > 0) state.counters["% of BLAS"] = 100 * blas_total / total;
  }

 private:
  bool prepare(const Case& c) {
    const std::string name = c.name();
    if (name == m_name) return m_run != nullptr;
    m_run.reset();  // before the next one takes memory
    m_name = name;
    try {
      m_run = c.make(m_rotated);
    } catch (const std::exception& error) {  // refused, or too large for this machine: the others go on
      m_error = error.what();
    }
    return m_run != nullptr;
  }

  std::size_t m_rotated;
  LimitSamples m_limits;
  std::string m_name, m_error;
  std::unique_ptr<Run> m_run;
};

}  // namespace

int run_benchmarks(const std::string& program, const std::vector<Case>& cases, std::size_t rotated,
                   std::vector<char*> arguments) {
  // Ahead of the command line's own, which therefore win.
  std::string repetitions = "--benchmark_repetitions=5";
  arguments.insert(arguments.begin() + 1, repetitions.data());
  int argc = static_cast<int>(arguments.size());
  benchmark::Initialize(&argc, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(argc, arguments.data())) return 2;
  benchmark::AddCustomContext("kformer", measure::version_line(program));
  benchmark::AddCustomContext("device", device_name());
  benchmark::AddCustomContext("threads", std::to_string(Space().concurrency()));
  benchmark::AddCustomContext("peak_isa", measure::burst_instructions());
  Benchmarks benchmarks(rotated);
  for (const auto& c : cases)
    benchmark::RegisterBenchmark(c.name().c_str(), [&](benchmark::State& state) { benchmarks.run(state, c); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  const std::size_t ran = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return ran > 0 ? 0 : 1;
}

}  // namespace kformer::perf
