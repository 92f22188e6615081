// SPDX-License-Identifier: MIT
#include <cmath>
#include <sstream>

#include "kformer/ops/sampling.hpp"
#include "ops/common/held_numbers.hpp"
#include "ops/sampling/logits.hpp"

namespace kformer::Impl {
namespace {

TensorRef dense(DType dtype, std::int64_t rows, std::int64_t columns) {
  TensorRef ref;
  ref.dtype = dtype;
  ref.rank = columns < 0 ? 1 : 2;
  ref.extent = {rows, columns < 0 ? 0 : columns};
  ref.stride = {columns < 0 ? 1 : columns, 1};
  return ref;
}

}  // namespace

Operands Sampling::operands() const {
  return Operands(function, {{"logits", logits},
                             {"history", history},
                             {"history_lengths", history_lengths},
                             {"positions", positions},
                             {"tokens", tokens},
                             {"log_probabilities", log_probabilities}});
}

void Sampling::check() const {
  const std::int64_t rows = logits.extent[0];
  const Operands all = operands();
  all.require_floating("logits")
      .require_dtype("history", DType::i32)
      .require_dtype("history_lengths", DType::i32)
      .require_dtype("positions", DType::i32)
      .require_dtype("tokens", DType::i32)
      .require_dtype("log_probabilities", compute_dtype(logits.dtype))
      .require_extents(
          positions.extent[0] == rows && tokens.extent[0] == rows && log_probabilities.extent[0] == rows,
          "positions, tokens and log_probabilities to have one element per row of logits")
      .require_extents(!history.present() || (history.extent[0] == rows && history_lengths.extent[0] == rows),
                       "history to have a row, and history_lengths an element, per row of logits")
      .require_unit_stride()
      .require_disjoint("tokens")
      .require_disjoint("log_probabilities");
  const SamplingOptions& o = options;
  const auto number = [](double value) { return std::to_string(value); };
  const DType computed = compute_dtype(logits.dtype);
  std::ostringstream penalty;
  penalty << o.repetition_penalty;
  all.require_option(std::isfinite(o.temperature) && o.temperature >= 0,
                     "temperature is " + number(o.temperature) + "; it must be finite and not negative")
      .require_option(o.top_k >= 0, "top_k is " + std::to_string(o.top_k) + "; it must not be negative")
      .require_option(o.top_p > 0 && o.top_p <= 1, "top_p is " + number(o.top_p) + "; it must lie in (0, 1]")
      .require_option(o.min_p >= 0 && o.min_p <= 1, "min_p is " + number(o.min_p) + "; it must lie in [0, 1]")
      .require_option(o.repetition_penalty > 0 && is_held(o.repetition_penalty, computed),
                      "repetition_penalty is " + penalty.str() + "; it must be finite and positive as " +
                          to_string(computed))
      .require_option(o.first_stream >= 0,
                      "first_stream is " + std::to_string(o.first_stream) + "; it must not be negative")
      .require_option(logits.extent[1] <= largest_vocabulary,
                      "the vocabulary is larger than " + std::to_string(largest_vocabulary) + " tokens");
}

Sampling sampling_shapes(DType dtype, std::int64_t rows, std::int64_t vocabulary, bool with_history,
                         const SamplingOptions& options) {
  const TensorRef ids = dense(DType::i32, rows, -1);
  const Sampling problem{dense(dtype, rows, vocabulary),
                         with_history ? dense(DType::i32, rows, 1) : TensorRef{},
                         with_history ? ids : TensorRef{},
                         ids,
                         ids,
                         dense(compute_dtype(dtype), rows, -1),
                         options};
  problem.check();
  return problem;
}

Operands TokenLogProbabilities::operands() const {
  return Operands(function, {{"logits", logits}, {"ids", ids}, {"log_probabilities", log_probabilities}});
}

void TokenLogProbabilities::check() const {
  operands()
      .require_floating("logits")
      .require_dtype("ids", DType::i32)
      .require_dtype("log_probabilities", compute_dtype(logits.dtype))
      .require_extents(ids.extent[0] == logits.extent[0] && log_probabilities.extent[0] == logits.extent[0],
                       "ids and log_probabilities to have one element per row of logits")
      .require_unit_stride()
      .require_disjoint("log_probabilities");
}

}  // namespace kformer::Impl
