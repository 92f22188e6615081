// SPDX-License-Identifier: MIT
#include "quantize/plan.hpp"

namespace kformer::drivers {

MatrixExtents extents_of(const CheckpointTensor& tensor) {
  const auto extent = [&](std::size_t i) { return static_cast<std::int64_t>(tensor.shape.at(i)); };
  if (tensor.shape.size() == 1) return {1, extent(0)};
  return {extent(0), extent(1)};
}

std::vector<TensorPlan> plan_tensors(const Checkpoint& checkpoint, QuantizedFormat layers,
                                     std::optional<QuantizedFormat> embedding) {
  std::vector<TensorPlan> plans;
  for (const auto& [name, shape] : model_tensor_shapes(checkpoint.model())) {
    TensorPlan plan{name, std::nullopt};
    if (shape.size() == 2) plan.format = name.starts_with("model.layers.") ? layers : embedding;
    if (plan.format && checkpoint.at(name).type == StoredType(*plan.format)) plan.format.reset();
    plans.push_back(std::move(plan));
  }
  return plans;
}

StoredType type_after(const CheckpointTensor& tensor, std::optional<QuantizedFormat> format) {
  return format ? StoredType(*format) : tensor.type;
}

std::size_t bytes_after(const CheckpointTensor& tensor, std::optional<QuantizedFormat> format) {
  if (!format) return tensor.bytes.size();
  const auto [rows, cols] = extents_of(tensor);
  return quantized_bytes(*format, rows, cols);
}

}  // namespace kformer::drivers
