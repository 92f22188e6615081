// SPDX-License-Identifier: MIT
#include "learner/sampler_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace kformer::drivers {

GeneratorOptions sampler_options(const PolicyTable& policy, std::int64_t sequences,
                                 std::int64_t longest_prompt) {
  return {.batch = policy.sample_batch > 0 ? policy.sample_batch : sequences,
          .max_new_tokens = policy.max_new_tokens,
          .prefill_chunk = std::min<std::int64_t>(512, longest_prompt),
          .sampling = {.temperature = policy.temperature, .top_k = policy.top_k, .top_p = policy.top_p}};
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
