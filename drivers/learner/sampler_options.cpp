// SPDX-License-Identifier: MIT
#include "learner/sampler_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kformer/core/error.hpp"

namespace kformer::drivers {

GeneratorOptions sampler_options(const PolicyTable& policy, std::int64_t sequences,
                                 std::int64_t longest_prompt) {
  return {.batch = policy.sample_batch > 0 ? policy.sample_batch : sequences,
          .max_new_tokens = policy.max_new_tokens,
          .prefill_chunk = std::min<std::int64_t>(512, longest_prompt),
          .sampling = {.temperature = policy.temperature, .top_k = policy.top_k, .top_p = policy.top_p}};
}

void require_dense_sampler(const WeightFormats& formats) {
  if (!formats.empty())
    throw NotSupported(
        fmt::format("kformer-train: objective.kind = \"grpo\" samples with dense weights, but these stay "
                    "quantised ({}); set weights.keep_quantized = false",
                    format_text(formats)));
}

std::string format_text(const WeightFormats& formats) {
  std::map<QuantizedFormat, int> counts;
  for (const auto& [name, format] : formats) ++counts[format];
  std::string text;
  for (const auto& [format, count] : counts)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, to_string(format));
  return text;
}

}  // namespace kformer::drivers
