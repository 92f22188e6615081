// SPDX-License-Identifier: MIT
#include "attention/attention_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "measure/memory_available.hpp"
#include "measure/spaces.hpp"
#include "sweep/judge.hpp"

namespace kformer::drivers {

namespace {

MakeRun maker(const std::string& space, const AttentionTask& task) {
  return [=](const std::shared_ptr<Ledger>& ledger) { return make_attention_run(space, task, ledger); };
}

HostArrays computed(const std::string& space, const AttentionTask& task, const std::string& kernels) {
  std::optional<ForcedKernels> forced;
  if (!kernels.empty()) forced.emplace(kernels);
  const auto run = make_attention_run(space, task, Ledger::create());
  run->prepare({});
  run->forward();
  if (task.backward) run->backward();
  return run->results(task.backward);
}

// The same in double: standard attention if possible, otherwise flash by the reference kernel if there is one.
AttentionTask exact(AttentionTask task) {
  task.shape.dtype = DType::f64;
  task.impl = standard_refusal(task).empty() ? AttentionAlgorithm::standard : AttentionAlgorithm::flash;
  return task;
}

// The naive computation in the same precision: standard attention through the portable kernel, every array
// stored.
AttentionTask naive(AttentionTask task) {
  task.shape.dtype = naive_stand_in(task.shape.dtype).dtype;
  task.impl = AttentionAlgorithm::standard;
  return task;
}

}  // namespace

AttentionSweep::AttentionSweep(const AttentionCompareDeck& deck, const AttentionTensors* tensors)
    : m_deck(deck), m_tensors(tensors) {}

AttentionTask AttentionSweep::task(const AttentionCase& p) const {
  return {{p.dtype, p.batch, query_length(p), p.seq_len, p.num_attention_heads, p.num_key_value_heads,
           p.head_dim, p.v_head_dim},
          {m_deck.attention.scale, p.causal, p.window, m_deck.attention.softcap, m_deck.attention.compute},
          p.impl,
          p.direction == Direction::backward,
          static_cast<std::uint64_t>(m_deck.run.seed),
          m_tensors ? &m_tensors->arrays : nullptr};
}

AttentionResult AttentionSweep::run(const AttentionCase& point, const std::function<bool()>& stop) {
  AttentionResult result;
  result.point = point;
  m_last.clear();
  result.flops = attention_flops(task(point));
  result.bytes_min = attention_bytes(task(point));
  const auto ended = [&](CaseStatus status, const std::exception& error) {
    result.status = status;
    result.message = error.what();
  };
  try {
    measure(point, result, stop);
  } catch (const OutOfMemory& error) {
    if (m_deck.run.on_oom == OnOutOfMemory::abort) throw;
    ended(CaseStatus::out_of_memory, error);
  } catch (const NotSupported& error) {
    ended(CaseStatus::unsupported, error);
  } catch (const std::exception& error) {
    ended(CaseStatus::error, error);
  }
  return result;
}

void AttentionSweep::measure(const AttentionCase& point, AttentionResult& result,
                             const std::function<bool()>& stop) {
  const AttentionTask what = task(point);
  const MakeRun make = maker(point.execution_space, what);
  result.predicted = predicted_bytes(make);
  if (const auto limit = m_deck.limits.device_bytes;
      limit > 0 && result.predicted > static_cast<std::size_t>(limit)) {
    result.status = CaseStatus::skipped_memory;
    result.message = fmt::format("the case needs {}, 'limits.device_bytes' allows {}",
                                 format_bytes(result.predicted), format_bytes(static_cast<std::size_t>(limit)));
    return;
  }
  if (const auto available = memory_available(point.execution_space);
      available && result.predicted > *available) {
    const auto fits = largest_seq_len(point.seq_len, [&](std::int64_t seq_len) {
      AttentionCase shorter = point;
      shorter.seq_len = seq_len;
      return predicted_bytes(maker(point.execution_space, task(shorter))) <= *available;
    });
    throw OutOfMemory(
        fmt::format("kformer-attention: the case needs {}, but only {} is available; with batch {} the "
                    "longest sequence that fits is {}",
                    format_bytes(result.predicted), format_bytes(*available), point.batch, fits));
  }

  const bool checked = m_deck.check.reference == CheckReference::f64 &&
                       std::max(point.seq_len, query_length(point)) <= m_deck.check.max_seq_len;
  const bool wanted = checked || (m_deck.tensors && !m_deck.tensors->output.empty());
  HostArrays results =
      drivers::measure(make, {point.direction, wanted, &m_deck.timing, &m_deck.profile, stop}, result);
  result.status = CaseStatus::unchecked;
  if (checked) check(point, results, result);
  m_last = std::move(results);
}

const HostArrays& AttentionSweep::oracle(const AttentionCase& p) {
  const AttentionTask task = exact(this->task(p));
  const std::string key = fmt::format("{} {} {} {} {} {} {} {} {} {} {}", p.execution_space, p.causal, p.window,
                                      p.num_attention_heads, p.num_key_value_heads, p.head_dim, p.v_head_dim,
                                      p.batch, p.q_len, p.seq_len, task.backward);
  if (m_oracle.key == key) return m_oracle.results;
  m_oracle = {};
  const bool by_reference = task.impl == AttentionAlgorithm::flash && runs_on_host(p.execution_space);
  m_oracle = {key, computed(p.execution_space, task, by_reference ? "attention:reference" : "")};
  return m_oracle.results;
}

void AttentionSweep::check(const AttentionCase& point, const HostArrays& results, AttentionResult& result) {
  const AttentionTask what = task(point);
  const std::size_t needed = predicted_bytes(maker(point.execution_space, exact(what)));
  if (const auto available = memory_available(point.execution_space); available && needed > *available) {
    result.message = fmt::format("not checked: the reference in double needs {}, but only {} is available",
                                 format_bytes(needed), format_bytes(*available));
    return;
  }
  const HostArrays& reference = oracle(point);
  record_errors(results, reference, result);
  if (const std::string refusal = standard_refusal(what); !refusal.empty()) {
    result.message = "errors recorded but not judged: the tolerance is set by the errors of standard attention";
    return;
  }
  result.status = CaseStatus::ok;
  if (!m_deck.check.fail) return;
  const HostArrays textbook = computed(point.execution_space, naive(what), "standard_attention:kokkos");
  result.message = judge(results, reference, textbook, what.shape.dtype,
                         [&](const std::string&) { return what.shape.dtype; });
  if (!result.message.empty()) result.status = CaseStatus::failed_check;
}

}  // namespace kformer::drivers
