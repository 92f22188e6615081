// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "kformer/io/safetensors.hpp"
#include "scratch_directory.hpp"

namespace kformer::Testing {

/// A matrix that bitsandbytes wrote: the reader copies it.
constexpr const char* large_matrix = "model.layers.0.self_attn.k_proj.weight";

/// Puts a copy of the checkpoint `llama` into a folder, in which that matrix has `size` bytes of codes, a multiple of 8192.
inline void put_large_nf4(const std::filesystem::path& llama, const ScratchDirectory& directory,
                          std::size_t size) {
  const std::string k = large_matrix, state = k + ".quant_state.bitsandbytes__nf4";
  const auto source = SafetensorsFile::open(llama / "model.safetensors");
  const std::size_t blocks = size / 32;
  const std::string codes(size, 'x'), scales(blocks, 'x'), nested(blocks / 256 * sizeof(float), '\0');
  const std::string text = R"({"quant_type": "nf4", "blocksize": 64, "shape": [)" + std::to_string(blocks) +
                           R"(, 64], "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0})";
  SafetensorsWriter writer;
  for (const std::string& name : source.names()) {
    const TensorEntry& entry = source.at(name);
    if (name == k)
      writer.add(name, "U8", {size, 1}, codes.data());
    else if (name == k + ".absmax")
      writer.add(name, "U8", {blocks}, scales.data());
    else if (name == k + ".nested_absmax")
      writer.add(name, "F32", {blocks / 256}, nested.data());
    else if (name == state)
      writer.add(name, "U8", {text.size()}, text.data());
    else
      writer.add(name, entry.dtype, entry.shape, entry.bytes.data());
  }
  writer.write(directory / "model.safetensors");
  put_contents(directory / "config.json", contents_of(llama / "config.json"));
}

}  // namespace kformer::Testing
