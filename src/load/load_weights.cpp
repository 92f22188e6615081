// SPDX-License-Identifier: MIT
#include "kformer/load/load_weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kformer/core/stored_type.hpp"
#include "load/divided_weights.hpp"
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
    if (const auto format = quantized_format_of(checkpoint.layout(name).type)) formats[name] = *format;
  }
  return formats;
}

std::size_t staging_bytes(const Checkpoint& checkpoint, const WeightFormats& kept) {
  std::size_t most = 0;
  for (const std::string& name : checkpoint.names())
    if (const TensorLayout tensor = checkpoint.layout(name);
        quantized_format_of(tensor.type).has_value() != kept.contains(name))
      most = std::max(most, tensor.bytes);
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

CheckpointTensor part_of_tensor(const CheckpointTensor& tensor, const WeightSlot& slot,
                                std::vector<std::byte>& host) {
  const auto axis = static_cast<std::size_t>(slot.slice.axis);
  const auto begin = static_cast<std::size_t>(slot.slice.begin),
             count = static_cast<std::size_t>(slot.extent(slot.slice.axis));
  CheckpointTensor part = tensor;
  part.shape[axis] = count;
  const auto format = quantized_format_of(tensor.type);
  const std::size_t block = format && axis == 1 ? static_cast<std::size_t>(weights_per_block(*format)) : 1;
  if (begin % block != 0 || count % block != 0 || (format && !has_separate_rows(*format)))
    throw NotSupported(
        fmt::format("kformer::load_weights: {} is quantised ({}) in the checkpoint in blocks that ranks would "
                    "divide; expand the checkpoint first, or take another number of ranks",
                    slot.name, to_string(*format)));
  const std::size_t row = tensor.bytes.size() / tensor.shape[0];
  if (axis == 0) {
    part.bytes = tensor.bytes.subspan(begin * row, count * row);
    return part;
  }
  const std::size_t width = tensor.shape[1], own = row / (width / block) * (count / block),
                    first = row / (width / block) * (begin / block);
  host.resize(tensor.shape[0] * own);
  for (std::size_t r = 0; r < tensor.shape[0]; ++r)
    std::memcpy(host.data() + r * own, tensor.bytes.data() + r * row + first, own);
  part.bytes = host;
  return part;
}

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
