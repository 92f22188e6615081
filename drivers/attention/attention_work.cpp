// SPDX-License-Identifier: MIT
#include <algorithm>

#include "attention/attention_case.hpp"

namespace kformer::drivers {

namespace {

double pairs_of_sequence(std::int64_t q_len, std::int64_t kv_len, const AttentionOptions& options) {
  const double all = static_cast<double>(q_len) * static_cast<double>(kv_len);
  if (options.window == 0 && !options.causal) return all;
  if (options.window == 0 && q_len == kv_len) return 0.5 * all;
  const Impl::Visibility visibility{q_len, kv_len, options.window, options.causal};
  double seen = 0;
  for (std::int64_t i = 0; i < q_len; ++i)
    seen += static_cast<double>(std::max<std::int64_t>(0, visibility.end(i) - visibility.first(i)));
  return seen;
}

// Keys that any query of a sequence sees: windows of neighbours overlap.
double keys_of_sequence(std::int64_t q_len, std::int64_t kv_len, const AttentionOptions& options) {
  if (q_len == 0) return 0;
  const Impl::Visibility visibility{q_len, kv_len, options.window, options.causal};
  return static_cast<double>(std::max<std::int64_t>(0, visibility.end(q_len - 1) - visibility.first(0)));
}

// The sum of `count(q_len, kv_len, options)` over the sequences of the batch.
template <class Count>
double sum_over_sequences(const AttentionTask& task, Count count) {
  const AttentionShape& s = task.shape;
  const measure::HostArray* q_starts = task.tensor("cu_seqlens_q");
  if (q_starts == nullptr) return static_cast<double>(s.batch) * count(s.q_len, s.kv_len, task.options);
  const auto& kv_starts = task.tensor("cu_seqlens_kv")->values;
  const auto length = [](const std::vector<double>& starts, std::size_t n) {
    return static_cast<std::int64_t>(starts[n + 1] - starts[n]);
  };
  double sum = 0;
  for (std::size_t n = 0; n + 1 < kv_starts.size(); ++n)
    sum += count(length(q_starts->values, n), length(kv_starts, n), task.options);
  return sum;
}

}  // namespace

double visible_pairs(const AttentionTask& task) { return sum_over_sequences(task, pairs_of_sequence); }

double attention_flops(const AttentionTask& task) {
  const AttentionShape& s = task.shape;
  const double forward = 2 * visible_pairs(task) * static_cast<double>(s.q_heads * (s.head_dim + s.v_head_dim));
  return task.backward ? 2.5 * forward : forward;
}

double attention_bytes(const AttentionTask& task) {
  const AttentionShape& s = task.shape;
  const double sequences = static_cast<double>(s.batch),
               queries = sequences * static_cast<double>(s.q_len * s.q_heads),
               keys = sequences * static_cast<double>(s.kv_len * s.kv_heads),
               seen = sum_over_sequences(task, keys_of_sequence) * static_cast<double>(s.kv_heads);
  const double rows = task.backward ? 2 * queries + seen + keys : queries + seen;
  const double width = static_cast<double>(s.head_dim + s.v_head_dim);
  const double lse = static_cast<double>(size_of(compute_dtype(s.dtype))) * queries;
  return static_cast<double>(size_of(s.dtype)) * width * rows + lse;
}

}  // namespace kformer::drivers
