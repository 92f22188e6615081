// SPDX-License-Identifier: MIT
#include "kformer/model/recompute_costs.hpp"

namespace kformer {

double pointwise_bytes(const LlamaConfig& config, LayerShape shape, std::size_t element_bytes) {
  const std::int64_t norms = 2 * 2 * config.hidden_size, product = 3 * config.intermediate_size;
  return static_cast<double>(shape.rows() * (norms + product)) * static_cast<double>(element_bytes);
}

}  // namespace kformer
