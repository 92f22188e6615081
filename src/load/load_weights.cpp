// SPDX-License-Identifier: MIT
#include "kformer/load/load_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kformer/core/stored_type.hpp"
#include "load/merge_staging.hpp"
#include "load/safetensors_array.hpp"

namespace kformer {

WeightFormats quantized_weights(const Checkpoint& checkpoint) {
  WeightFormats formats;
  // A file may hold tensors that the model does not read, such as a head besides a tied embedding.
  const auto shapes = model_tensor_shapes(checkpoint.model());
  for (const std::string& name : checkpoint.names()) {
    const auto shape = shapes.find(name);
    if (shape == shapes.end() || shape->second.size() != 2) continue;
    if (const auto format = quantized_format_of(checkpoint.at(name).type)) formats[name] = *format;
  }
  return formats;
}

std::size_t staging_bytes(const Checkpoint& checkpoint, const WeightFormats& kept) {
  std::size_t most = 0;
  for (const std::string& name : checkpoint.names())
    if (const auto& tensor = checkpoint.at(name);
        quantized_format_of(tensor.type).has_value() != kept.contains(name))
      most = std::max(most, tensor.bytes.size());
  return most;
}

std::size_t merge_staging_bytes(const AdapterCheckpoint& adapter, const LlamaConfig& model, DType dtype) {
  std::size_t most = 0;
  for (std::size_t i = 0; i < adapter.lora().targets.size(); ++i) {
    const auto [out, in] = projection_extents(model, static_cast<Projection>(i));
    const std::int64_t rank = adapter.lora().targets[i].rank;
    const auto matrices = static_cast<std::size_t>(rank * (out + in)) * size_of(dtype);
    const bool scaled = adapter.lora().magnitudes && rank > 0;
    most = std::max(most, scaled ? Impl::MergeStaging(rank, in, out, dtype).end : matrices);
  }
  return most;
}

namespace Impl {

void require_shape(const WeightSlot& slot, const CheckpointTensor& tensor) {
  std::vector<std::size_t> wanted =
      slot.is_quantized() ? std::vector<std::size_t>{static_cast<std::size_t>(slot.quantized.rows),
                                                     static_cast<std::size_t>(slot.quantized.cols)}
                          : shape_of(slot.dense);
  if (slot.slice.divides())
    wanted[static_cast<std::size_t>(slot.slice.axis)] = static_cast<std::size_t>(slot.slice.whole);
  if (tensor.shape != wanted)
    throw FileError(
        fmt::format("kformer::load_weights: {} has the extents {} in the checkpoint, and {} in the "
                    "model; make the model with llama_config(checkpoint.model())",
                    slot.name, tensor.shape, wanted));
}

}  // namespace Impl

}  // namespace kformer
