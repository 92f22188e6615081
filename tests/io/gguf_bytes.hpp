// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/touch.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/gguf.hpp"

/// \file
/// GGUF files byte by byte, well formed or not.

namespace kformer::Testing {

/// The bytes of a number.
template <class Number>
std::string raw(Number number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

/// A string as the format has it: its length, then its bytes.
inline std::string raw_text(const std::string& text) { return raw<std::uint64_t>(text.size()) + text; }

/// Metadata values: the number of the type, then the value.
inline std::string u32_value(std::uint32_t value) { return raw<std::uint32_t>(4) + raw(value); }
inline std::string f32_value(float value) { return raw<std::uint32_t>(6) + raw(value); }
inline std::string bool_value(char value) { return raw<std::uint32_t>(7) + raw(value); }
inline std::string text_value(const std::string& text) { return raw<std::uint32_t>(8) + raw_text(text); }
inline std::string array_value(std::uint32_t type, std::uint64_t count, const std::string& elements) {
  return raw<std::uint32_t>(9) + raw(type) + raw(count) + elements;
}

/// A tensor; its extents are in the order of the file, fastest first.
struct GgufTensorBytes {
  std::string name;
  std::vector<std::uint64_t> extents;
  std::uint32_t type;
  std::string data;
  std::optional<std::uint64_t> offset{};  ///< if it is not the next aligned one
};

/// The parts of a GGUF file.
struct GgufImage {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<GgufTensorBytes> tensors;
  std::uint64_t alignment = 32;
  std::optional<std::uint64_t> tensor_count{};
  std::optional<std::uint64_t> metadata_count{};

  std::string bytes() const {
    const auto pad = [&](std::string& text) {
      text.resize((text.size() + alignment - 1) / alignment * alignment, '\0');
    };
    std::string head = magic + raw(version) + raw(tensor_count.value_or(tensors.size())) +
                       raw(metadata_count.value_or(metadata.size()));
    std::string data;
    for (const auto& [key, value] : metadata) head += raw_text(key) + value;
    for (const auto& tensor : tensors) {
      pad(data);
      head += raw_text(tensor.name) + raw(static_cast<std::uint32_t>(tensor.extents.size()));
      for (const std::uint64_t extent : tensor.extents) head += raw(extent);
      head += raw(tensor.type) + raw(tensor.offset.value_or(data.size()));
      data += tensor.data;
    }
    pad(head);
    return head + data;
  }

  /// Replaces or adds a metadata value.
  void set(const std::string& key, const std::string& value) {
    for (auto& [name, old] : metadata) {
      if (name == key) {
        old = value;
        return;
      }
    }
    metadata.emplace_back(key, value);
  }
};

/// `count` floats, 0, 1, 2, …
inline std::string floats(std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += raw(static_cast<float>(i));
  return bytes;
}

/// A whole model with one layer: hidden size 32, two query heads on one head of 8 keys and values, 48 features
/// inside the MLP, vocabulary 6, tied.
inline GgufImage small_gguf_model(const std::string& architecture = "llama") {
  GgufImage image;
  image.metadata = {{"general.architecture", text_value(architecture)},
                    {architecture + ".block_count", u32_value(1)},
                    {architecture + ".context_length", u32_value(128)},
                    {architecture + ".embedding_length", u32_value(32)},
                    {architecture + ".feed_forward_length", u32_value(48)},
                    {architecture + ".attention.head_count", u32_value(2)},
                    {architecture + ".attention.head_count_kv", u32_value(1)},
                    {architecture + ".attention.key_length", u32_value(8)},
                    {architecture + ".attention.layer_norm_rms_epsilon", f32_value(1e-5F)},
                    {"tokenizer.ggml.bos_token_id", u32_value(1)},
                    {"tokenizer.ggml.eos_token_id", u32_value(2)}};
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> extents) {
    std::size_t count = 1;
    for (const auto extent : extents) count *= extent;
    image.tensors.push_back({name, std::move(extents), 0, floats(count)});
  };
  add("token_embd.weight", {32, 6});
  add("output_norm.weight", {32});
  add("blk.0.attn_norm.weight", {32});
  add("blk.0.attn_q.weight", {32, 16});
  add("blk.0.attn_k.weight", {32, 8});
  add("blk.0.attn_v.weight", {32, 8});
  add("blk.0.attn_output.weight", {16, 32});
  add("blk.0.ffn_norm.weight", {32});
  add("blk.0.ffn_gate.weight", {32, 48});
  add("blk.0.ffn_up.weight", {32, 48});
  add("blk.0.ffn_down.weight", {48, 32});
  return image;
}

/// Touches every byte of every tensor and reads every value as every type. Returns how many bytes the tensors have.
inline std::size_t read_everything(const GgufFile& file) {
  std::size_t count = 0;
  for (const auto& name : file.names()) count += touch(file.find(name)->bytes);
  const auto attempt = [](auto&& read) {
    try {
      read();
      return true;
    } catch (const FileError&) {
      return false;  // the value has another type
    }
  };
  for (const auto& key : file.keys()) {
    attempt([&] { file.find_string(key); });
    attempt([&] { file.find_integer(key); });
    attempt([&] { file.find_number(key); });
    attempt([&] { file.find_bool(key); });
    attempt([&] { file.find_strings(key); });
    attempt([&] { file.find_integers(key); });
    attempt([&] { file.find_numbers(key); });
  }
  return count;
}

}  // namespace kformer::Testing
