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

}  // namespace

double visible_pairs(const AttentionTask& task) {
  const AttentionShape& s = task.shape;
  const measure::HostArray* q_starts = task.tensor("cu_seqlens_q");
  if (q_starts == nullptr)
    return static_cast<double>(s.batch) * pairs_of_sequence(s.q_len, s.kv_len, task.options);
  const auto& kv_starts = task.tensor("cu_seqlens_kv")->values;
  const auto length = [](const std::vector<double>& starts, std::size_t n) {
    return static_cast<std::int64_t>(starts[n + 1] - starts[n]);
  };
  double pairs = 0;
  for (std::size_t n = 0; n + 1 < kv_starts.size(); ++n)
    pairs += pairs_of_sequence(length(q_starts->values, n), length(kv_starts, n), task.options);
  return pairs;
}

double attention_flops(const AttentionTask& task) {
  const AttentionShape& s = task.shape;
  const double forward = 2 * visible_pairs(task) * static_cast<double>(s.q_heads * (s.head_dim + s.v_head_dim));
  return task.backward ? 2.5 * forward : forward;
}

double attention_bytes(const AttentionTask& task) {
  const AttentionShape& s = task.shape;
  const double queries = static_cast<double>(s.batch * s.q_len * s.q_heads),
               keys = static_cast<double>(s.batch * s.kv_len * s.kv_heads);
  const double width = static_cast<double>(s.head_dim + s.v_head_dim);
  const double arrays = static_cast<double>(size_of(s.dtype)) * width * (queries + keys);
  const double lse = static_cast<double>(size_of(compute_dtype(s.dtype))) * queries;
  return (task.backward ? 2 : 1) * arrays + lse;
}

}  // namespace kformer::drivers
