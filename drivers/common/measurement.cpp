// SPDX-License-Identifier: MIT
#include "common/measurement.hpp"

#include <chrono>

#include "common/allocation_witness.hpp"
#include "common/kernel_names.hpp"
#include "kformer/core/region.hpp"

namespace kformer::drivers {

namespace {

const char* direction_name(bool backward) { return backward ? "backward" : "forward"; }

// One forward and, if asked for, one backward, in the regions "forward" and "backward". Returns the seconds of
// the last.
double run_once(Run& run, bool backward) {
  const auto timed = [&](bool back) {
    run.fence();
    const auto begin = std::chrono::steady_clock::now();
    {
      Region region(direction_name(back));
      back ? run.backward() : run.forward();
    }
    run.fence();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double forward = timed(false);
  return backward ? timed(true) : forward;
}

}  // namespace

std::size_t predicted_bytes(const MakeRun& make) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  make(ledger);
  return ledger->peak_total();
}

HostArrays measure(const MakeRun& make, const MeasuringPlan& plan, Measurement& measurement) {
  const TimingTable& timing = *plan.timing;
  AllocationWitness* witness =
      plan.profile->memory == MemoryProfile::peak ? &AllocationWitness::install() : nullptr;
  if (witness) witness->reset_peaks();
  const auto ledger = Ledger::create();
  HostArrays results;
  {
    KernelNames names;
    const auto run = make(ledger);
    run->prepare();
    double warm = 0;
    if (plan.profile->kernels) {
      Profiler profiler;
      warm = run_once(*run, plan.backward);
      measurement.regions = profiler.regions();
      measurement.profile = profiler.kernels();
    } else {
      warm = run_once(*run, plan.backward);
    }
    if (plan.keep_results) results = run->results(plan.backward);
    for (std::int64_t i = 1; i < timing.warmup && !plan.stop(); ++i)
      warm = run->sample(plan.backward, {.repeats = 1, .min_time_s = 0}, 0, plan.stop).seconds.front();
    measurement.samples =
        run->sample(plan.backward, {timing.repeats, timing.min_time_s, timing.max_time_s}, warm, plan.stop);
    measurement.kernels = names.text();
  }
  for (int c = 0; c < memory_classes; ++c)
    measurement.peak[static_cast<std::size_t>(c)] = ledger->peak(static_cast<MemoryClass>(c));
  measurement.peak_total = ledger->peak_total();
  if (witness && witness->installed())
    for (const auto& [name, space] : witness->spaces()) measurement.witnessed[name] = space.peak;
  return results;
}

}  // namespace kformer::drivers
