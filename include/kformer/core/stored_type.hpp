// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "kformer/core/dtype.hpp"
#include "kformer/core/quantized_format.hpp"
#include "kformer/core/types/stored_type.hpp"

/// \file
/// Types of tensors by their names in files. Does not need Kokkos.

namespace kformer {

/// The name in safetensors and GGUF files, such as `BF16`.
constexpr const char* name_in_files(DType dtype) {
  constexpr std::array<const char*, names_of<DType>.size()> names = {"F32", "BF16", "F16", "F64", "I32", "U8"};
  return names[static_cast<std::size_t>(dtype)];
}

/// The type with this name in files; an `OtherType` if the library does not compute with it.
inline StoredType stored_type_named(std::string_view name) {
  for (std::size_t i = 0; i < names_of<DType>.size(); ++i)
    if (const auto dtype = static_cast<DType>(i); name == name_in_files(dtype)) return dtype;
  if (const auto format = quantized_format_named(name)) return *format;
  return OtherType{std::string(name)};
}

/// The name in files.
inline std::string to_string(const StoredType& type) {
  if (const auto* dtype = std::get_if<DType>(&type)) return name_in_files(*dtype);
  if (const auto* format = std::get_if<QuantizedFormat>(&type)) return to_string(*format);
  return std::get<OtherType>(type).name;
}

/// The type of single numbers; empty for any other.
inline std::optional<DType> dtype_of_numbers(const StoredType& type) {
  const auto* dtype = std::get_if<DType>(&type);
  return dtype ? std::optional(*dtype) : std::nullopt;
}

/// The format of quantised weights; empty for any other.
inline std::optional<QuantizedFormat> quantized_format_of(const StoredType& type) {
  const auto* format = std::get_if<QuantizedFormat>(&type);
  return format ? std::optional(*format) : std::nullopt;
}

}  // namespace kformer
