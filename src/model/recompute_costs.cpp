// SPDX-License-Identifier: MIT
#include "kformer/model/recompute_costs.hpp"

#include <algorithm>

namespace kformer {

double pointwise_bytes(const LlamaConfig& config, LayerShape shape, std::size_t element_bytes) {
  const std::int64_t norms = 2 * 2 * config.hidden_size, product = 3 * config.intermediate_size;
  return static_cast<double>(shape.rows() * (norms + product)) * static_cast<double>(element_bytes);
}

double offload_seconds(std::size_t input_bytes, double forward_seconds, double backward_seconds,
                       const MachineRates& rates) {
  const double copy = static_cast<double>(input_bytes) / rates.transfers;
  const auto beyond = [&](double work) { return std::max(0.0, copy - work); };
  return beyond(forward_seconds) + beyond(forward_seconds + backward_seconds);
}

}  // namespace kformer
