// SPDX-License-Identifier: MIT
#include "generate/logit_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "app/ranks.hpp"
#include "kformer/core/kernel_list.hpp"
#include "kformer/core/tolerance.hpp"
#include "language_model/cache_options.hpp"
#include "measure/host_array.hpp"
#include "measure/kernel_names.hpp"
#include "sweep/check_kernels.hpp"

namespace kformer::drivers {

namespace {

std::string name_of_row(std::size_t row) { return fmt::format("row {}", row); }

}  // namespace

LogitCheck::LogitCheck(const std::string& space, const EngineTask& task, const Checkpoint& checkpoint,
                       std::string loading)
    : m_space(reference_space(space)), m_task(task), m_checkpoint(checkpoint), m_loading(std::move(loading)) {}

void LogitCheck::keep(const TextEngine& engine) {
  auto logits = engine.step_logits();
  for (std::size_t r = 0; r < logits.size(); ++r) {
    const GeneratedSequence& sequence = engine.sequences()[r];
    if (logits[r].empty() || sequence.stopped == StopReason::no_token) continue;
    m_steps.push_back({r, sequence.tokens.size() - 1, std::move(logits[r])});
  }
}

// One sequence with a cache of its own, always from its beginning.
EngineTask LogitCheck::task(DType dtype) const {
  EngineTask task = m_task;
  task.dtype = dtype;
  task.decoder.activations = Activations::full;
  task.generator.batch = task.decoder.max_logit_rows = 1;
  task.cache = cache_options(KvCacheKind::contiguous, {}, task);
  task.logits_after = true;
  return task;
}

void LogitCheck::make(Recomputation& recomputation, const std::string& kernels, DType dtype) const {
  if (recomputation.engine && recomputation.kernels == kernels) return;
  recomputation = {};
  const ForcedKernels forced(kernels);
  const measure::KernelNames names;
  recomputation.ledger = Ledger::create();
  recomputation.engine = make_text_engine(m_space, task(dtype), recomputation.ledger);
  recomputation.engine->load(m_checkpoint, {});
  recomputation.ran = names.text();
  recomputation.kernels = kernels;
}

// The logits of all steps, a matrix for each sequence; null if it was stopped.
std::shared_ptr<ReferenceResult> LogitCheck::run(Recomputation& recomputation, const std::string& kernels,
                                                 DType dtype, const TextEngine& engine,
                                                 const std::function<bool()>& stop) const {
  make(recomputation, kernels, dtype);
  const ForcedKernels forced(kernels);
  const measure::KernelNames names;
  const auto result = std::make_shared<ReferenceResult>();
  for (const Step& step : m_steps) {
    if (stop()) return nullptr;
    const GeneratedSequence& sequence = engine.sequences()[step.row];
    const auto first = sequence.tokens.begin();
    const std::vector<std::int32_t> before(first, first + static_cast<std::ptrdiff_t>(step.tokens));
    add_row(result->arrays[name_of_row(step.row)],
            recomputation.engine->logits_after(before, sequence.adapter));
  }
  result->kernels = recomputation.ran = joined(recomputation.ran, names.text());
  return result;
}

// Where it is; its size goes into `generation`.
std::string LogitCheck::largest_error(const measure::HostArrays& exact, Generation& generation) const {
  std::map<std::size_t, std::ptrdiff_t> begin;  // of the next step, by row
  long double largest = 0;
  std::string where;
  for (const Step& step : m_steps) {
    const auto first = exact.at(name_of_row(step.row)).values.begin() + begin[step.row];
    const auto size = static_cast<std::ptrdiff_t>(step.logits.size());
    const long double error = error_norms(step.logits, std::vector<double>(first, first + size)).max;
    begin[step.row] += size;
    if (!where.empty() && !(error > largest)) continue;
    largest = error;
    where = fmt::format("largest for token {} of sequence {}", step.tokens, step.row);
  }
  generation.max_logit_err = static_cast<double>(largest);
  return where;
}

// What the engines of earlier prompts hold.
std::size_t LogitCheck::held_bytes() const {
  std::size_t bytes = 0;
  for (const Recomputation* recomputation : {&m_exact, &m_naive})
    if (recomputation->engine) bytes += recomputation->ledger->current_total();
  return bytes;
}

// All ranks agree: they recompute together. They may be on one machine.
bool LogitCheck::fits(Measurement& m) const {
  const auto& ranks = m_task.decoder.tensor;
  if (!ranks) return fits_check(m_space, m);
  const bool own = fits_check(m_space, m, ranks->size());
  const double lacks = own ? 0 : 1;
  const std::vector<double> all = gather(*ranks, std::span(&lacks, 1), "memory of a check");
  if (std::ranges::count(all, 0.0) == std::ssize(all)) return true;
  if (own) m.message = "not checked: another rank lacks the memory";
  return false;
}

bool LogitCheck::is_judged(const TextEngine& engine) const {
  return engine.exact_cache() && m_task.decoder.activations == Activations::full;
}

void LogitCheck::judge(const TextEngine& engine, Generation& generation, const std::function<bool()>& stop) {
  Measurement& m = generation.measurement;
  if (m_steps.empty()) {
    m.message = "not checked: no token was chosen";
    return;
  }
  const DType naive_type = naive_stand_in(m_task.dtype).dtype;
  std::size_t kept = 0;
  for (const Step& step : m_steps) kept += step.logits.size() * sizeof(double);
  const std::string ran = m_loading + " " + m.kernels, kernels = reference_kernels(ran);
  const std::size_t runs = with_own_sums(kernels, m.kernels) == kernels ? 2 : 4;
  m.check_bytes = forecast_of(m_space, task(DType::f64))->peak_total() +
                  forecast_of(m_space, task(naive_type))->peak_total() + (1 + runs) * kept;
  m.check_held = held_bytes();
  if (!fits(m)) return;

  const auto exact = run(m_exact, reference_kernels(ran, Instead::reference), DType::f64, engine, stop);
  if (!exact) return interrupted(m);
  const std::string where = largest_error(exact->arrays, generation);
  m.check_kernels = exact->kernels;
  if (!is_judged(engine)) {
    m.message = "errors recorded but not judged: the cache or 8-bit activations change logits on purpose";
    return;
  }
  if (!independent(m, m_loading)) return;
  measure::HostArrays results;
  for (const Step& step : m_steps) add_row(results[name_of_row(step.row)], step.logits);
  const DType dtype = m_task.dtype;
  const NaiveRuns naive{kernels,
                        [&](const std::string& by) { return run(m_naive, by, naive_type, engine, stop); },
                        [&](const std::string& by) { return run(m_exact, by, DType::f64, engine, stop); }};
  judge_case({results, dtype, [=](const std::string&) { return dtype; }}, *exact, naive, m, m_loading);
  if (m.status == CaseStatus::failed_check) m.message += "; " + where;
}

}  // namespace kformer::drivers
