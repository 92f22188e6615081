// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// \file
/// Tensors in the safetensors format: u64 header length, JSON header, raw row-major little-endian data.

namespace kformer {

/// One tensor of a safetensors file.
struct TensorEntry {
  std::string dtype;                 ///< as in the file: F64, F32, F16, BF16, I64, ..., BOOL, F8_E4M3, ...
  std::vector<std::size_t> shape;    ///< slowest extent first; empty for a scalar
  std::span<const std::byte> bytes;  ///< row-major, little-endian; need not be aligned

  /// Number of elements.
  std::size_t size() const;
};

/// A safetensors file, mapped into memory and fully checked: the header's syntax, known element types, sizes
/// that match the shapes, and data without gaps, overlaps or trailing bytes.
///
/// The data stay mapped as long as this object or a copy of it exists. The file must not be shortened
/// meanwhile.
class SafetensorsFile {
 public:
  /// Maps and checks the file at `path`.
  /// \throws FileError naming the file, the tensor, and the violated rule
  static SafetensorsFile open(const std::filesystem::path& path);

  /// Checks the contents of a file in memory; `bytes` must outlive the result.
  /// \param bytes  the whole file
  /// \param source name in error texts
  /// \throws FileError as open() does
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string source);

  /// The names of all tensors, sorted.
  std::vector<std::string> names() const;
  /// The free-form texts of the header.
  const std::map<std::string, std::string>& metadata() const { return m_metadata; }
  /// The tensor `name`, or null.
  const TensorEntry* find(std::string_view name) const;
  /// The tensor `name`.
  /// \throws FileError with similar names if there is none
  const TensorEntry& at(std::string_view name) const;
  /// The elements of tensor `name`, exactly converted from F64, F32, F16 or BF16.
  /// \throws FileError if there is no such tensor, or if it has another element type
  std::vector<double> read_f64(std::string_view name) const;
  /// Takes the bytes of tensor `name` out of the memory of the process, if the file is mapped; their next access reads the
  /// file again. Safe while others read.
  /// \throws FileError if there is no such tensor
  void release(std::string_view name) const;

 private:
  SafetensorsFile() = default;

  std::string m_source;
  std::shared_ptr<const std::byte> m_mapping;
  std::map<std::string, TensorEntry, std::less<>> m_tensors;
  std::map<std::string, std::string> m_metadata;
};

/// Collects tensors and writes them to a safetensors file. The same tensors give the same bytes, in whatever
/// order they were added: sorted by element size, largest first, so that all are aligned, then by name.
class SafetensorsWriter {
 public:
  /// Sets a free-form text of the header; a second call replaces it.
  void metadata(const std::string& key, const std::string& value);

  /// Adds a tensor; its data are read by write(), not now.
  /// \param name  unique in the file
  /// \param dtype "F64", "F32", ...
  /// \param shape slowest extent first
  /// \param data  row-major elements
  /// \throws Error if the name is taken or reserved, the type unknown, or the size too large to address
  void add(const std::string& name, const std::string& dtype, const std::vector<std::size_t>& shape,
           const void* data);

  /// The same for tensors that are not in memory at once.
  /// \param name  unique in the file
  /// \param dtype "F64", "F32", ...
  /// \param shape slowest extent first
  /// \param data  called by write(), tensor by tensor in the order of the file; returns row-major elements, which may be
  ///              gone at the next call
  /// \throws Error as above
  void add(const std::string& name, const std::string& dtype, const std::vector<std::size_t>& shape,
           std::function<const void*()> data);

  /// Writes the file atomically: the previous file at `path` stays until the new one is complete.
  /// \throws FileError naming the file and the reason, for instance a full disk
  void write(const std::filesystem::path& path) const;

 private:
  std::map<std::string, TensorEntry> m_tensors;
  std::map<std::string, std::function<const void*()>> m_sources;  // of some of them
  std::map<std::string, std::string> m_metadata;
};

}  // namespace kformer
