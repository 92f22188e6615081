// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "io/touch.hpp"
#include "kformer/io/safetensors.hpp"

/// \file
/// Safetensors files byte by byte, well formed or not.

namespace kformer::Testing {

/// The bytes of a safetensors file with this header, well formed or not.
inline std::string safetensors_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + header + data;
}

/// Touches every byte of every tensor and reads every number. Returns how many bytes the tensors have.
inline std::size_t read_everything(const SafetensorsFile& file) {
  std::size_t count = 0;
  for (const auto& name : file.names()) {
    const auto& entry = file.at(name);
    count += touch(entry.bytes);
    const bool numbers =
        entry.dtype == "F64" || entry.dtype == "F32" || entry.dtype == "F16" || entry.dtype == "BF16";
    if (numbers && file.read_f64(name).size() != entry.size())
      throw std::logic_error("read_f64 returned another number of values than " + name + " has");
  }
  return count;
}

}  // namespace kformer::Testing
