// SPDX-License-Identifier: MIT
#include "kformer/model/flops.hpp"

#include <algorithm>

namespace kformer {

double layer_flops(const LlamaConfig& config, LayerShape shape, bool backward, bool causal) {
  const double rows = static_cast<double>(shape.rows()), seq = static_cast<double>(shape.seq_len);
  const double matrices = static_cast<double>(
      (config.qkv_size() + config.attention_size() + 3 * config.intermediate_size) * config.hidden_size);
  const double hidden_by_window =
      config.sliding_window > 0 ? std::max(0.0, seq - static_cast<double>(config.sliding_window)) : 0;
  const double pairs = (causal ? 0.5 : 1.0) * (seq * seq - hidden_by_window * hidden_by_window);
  const double linear = 2 * rows * matrices;
  const double attention = 4 * static_cast<double>(shape.batch * config.attention_size()) * pairs;
  return backward ? 2 * linear + 2.5 * attention : linear + attention;
}

double training_flops_per_token(const LlamaConfig& config, std::int64_t seq_len, const LoraConfig& lora) {
  return (lora.any() ? 4 : 6) * static_cast<double>(config.model_parameter_count()) +
         6 * static_cast<double>(adapter_parameter_count(config, lora)) +
         12 * static_cast<double>(config.num_hidden_layers * config.attention_size() * seq_len);
}

}  // namespace kformer
