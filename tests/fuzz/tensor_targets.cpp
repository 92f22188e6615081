// SPDX-License-Identifier: MIT
#include <array>
#include <stdexcept>

#include "attention/attention_tensors.hpp"
#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "layer/layer_tensors.hpp"

namespace kformer::Testing {

namespace {

void check_arrays(const measure::HostArrays& arrays) {
  for (const auto& [name, array] : arrays) {
    std::size_t count = 1;
    for (const std::size_t extent : array.shape) count *= extent;
    if (array.values.size() != count) throw std::logic_error("not as many values as " + name + " has");
  }
}

// Of a deck that leaves the model to the file.
void read_layer(std::string_view bytes) {
  static const InputFolder folder("layer.safetensors");
  ModelTable model;
  check_arrays(drivers::read_layer_tensors(folder.put(bytes), model, false).arrays);
}

void read_attention(std::string_view bytes) {
  static const InputFolder folder("attention.safetensors");
  check_arrays(drivers::read_attention_tensors(folder.put(bytes)).arrays);
}

}  // namespace

std::span<const FuzzTarget> tensor_targets() {
  static constexpr std::array<FuzzTarget, 2> targets{
      {{"layer_tensors", read_layer}, {"attention_tensors", read_attention}}};
  return targets;
}

}  // namespace kformer::Testing
