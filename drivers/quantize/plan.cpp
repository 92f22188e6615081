// SPDX-License-Identifier: MIT
#include "quantize/plan.hpp"

namespace kformer::drivers {

MatrixExtents extents_of(const std::vector<std::size_t>& shape) {
  const auto extent = [&](std::size_t i) { return static_cast<std::int64_t>(shape.at(i)); };
  if (shape.size() == 1) return {1, extent(0)};
  return {extent(0), extent(1)};
}

std::vector<TensorPlan> plan_tensors(const Checkpoint& checkpoint, const std::optional<StoredType>& layers,
                                     const std::optional<StoredType>& embedding) {
  std::vector<TensorPlan> plans;
  for (const auto& [name, shape] : model_tensor_shapes(checkpoint.model())) {
    TensorPlan plan{name, std::nullopt};
    if (shape.size() == 2) plan.format = name.starts_with("model.layers.") ? layers : embedding;
    if (plan.format == checkpoint.layout(name).type) plan.format.reset();
    plans.push_back(std::move(plan));
  }
  return plans;
}

StoredType type_after(const TensorLayout& tensor, const std::optional<StoredType>& format) {
  return format.value_or(tensor.type);
}

std::size_t bytes_after(const TensorLayout& tensor, const std::optional<StoredType>& format) {
  if (!format) return tensor.bytes;
  const auto [rows, cols] = extents_of(tensor.shape);
  return bytes_of(*format, rows, cols);
}

std::size_t bytes_of(const StoredType& type, std::int64_t rows, std::int64_t cols) {
  if (const auto format = quantized_format_of(type)) return quantized_bytes(*format, rows, cols);
  return static_cast<std::size_t>(rows * cols) * size_of(std::get<DType>(type));
}

}  // namespace kformer::drivers
