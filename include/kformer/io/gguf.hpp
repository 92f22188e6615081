// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/io/checkpoint_tensor.hpp"

/// \file
/// Files in the GGUF format, version 3 (ggml, `docs/gguf.md`): metadata, then tensors under the names of ggml.

namespace kformer {

/// The type of a metadata value, with the numbers of the format.
enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// A metadata value in the file.
struct GgufValue {
  GgufType type = GgufType::u8;      ///< of the value; of an array, that of its elements
  bool is_array = false;             ///< whether there are `count` elements
  std::uint64_t count = 1;           ///< elements of an array, else 1
  std::span<const std::byte> bytes;  ///< of all elements
};

/// A GGUF file, mapped into memory and fully checked: lengths and counts against the file's size before
/// anything is allocated, known types, no name twice, tensors inside the data, aligned and without overlap.
///
/// Tensors are of type F32, F16, BF16, F64, Q8_0, Q4_0, Q4_1, TQ1_0 or TQ2_0; a file with any other is refused.
/// The file stays mapped as long as this object or a copy of it exists; it must not be shortened meanwhile.
class GgufFile {
 public:
  /// Maps and checks the file at `path`.
  /// \throws FileError naming the file, the key or tensor, and the violated rule
  static GgufFile open(const std::filesystem::path& path);

  /// Checks the contents of a file in memory; `bytes` must outlive the result.
  /// \param bytes  the whole file
  /// \param source name in error texts
  /// \throws FileError as open() does
  static GgufFile parse(std::span<const std::byte> bytes, std::string source);

  /// The name of the file in error texts.
  const std::string& source() const { return m_source; }

  /// The names of all tensors, sorted, as in the file ("blk.0.attn_q.weight").
  std::vector<std::string> names() const;
  /// The tensor `name`, or null. Its shape has the slowest extent first, in the opposite order of the file.
  const CheckpointTensor* find(std::string_view name) const;

  /// The keys of all metadata, sorted.
  std::vector<std::string> keys() const;
  /// Whether there is a metadata value `key`.
  bool has(std::string_view key) const { return m_metadata.find(key) != m_metadata.end(); }

  /// Whether the value of `key` is an array.
  bool has_array(std::string_view key) const;

  /// \name Metadata by type
  /// The value of a key, or nothing if the file has no such key. All throw a FileError that names the key if
  /// its value has another type.
  /// @{

  /// A text.
  std::optional<std::string> find_string(std::string_view key) const;
  /// An integer of any type that fits into 64 bits.
  std::optional<std::int64_t> find_integer(std::string_view key) const;
  /// A number of any type.
  std::optional<double> find_number(std::string_view key) const;
  /// A bool.
  std::optional<bool> find_bool(std::string_view key) const;
  /// An array of texts.
  std::optional<std::vector<std::string>> find_strings(std::string_view key) const;
  /// An array of integers of any type that fit into 64 bits.
  std::optional<std::vector<std::int64_t>> find_integers(std::string_view key) const;
  /// An array of numbers of any type.
  std::optional<std::vector<double>> find_numbers(std::string_view key) const;
  /// @}

 private:
  GgufFile() = default;
  const GgufValue* find_value(std::string_view key, bool is_array, bool (*fits)(GgufType),
                              const char* expected) const;

  std::string m_source;
  std::shared_ptr<const std::byte> m_mapping;
  std::map<std::string, GgufValue, std::less<>> m_metadata;
  std::map<std::string, CheckpointTensor, std::less<>> m_tensors;
};

}  // namespace kformer
