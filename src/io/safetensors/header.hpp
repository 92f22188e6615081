// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kformer::Impl {

/// One tensor as the header describes it; only the syntax is checked.
struct HeaderEntry {
  std::string dtype;                 ///< element type
  std::vector<std::size_t> shape;    ///< extents
  std::vector<std::size_t> offsets;  ///< begin and end in the data, in bytes
};

/// The JSON header of a safetensors file.
struct Header {
  std::map<std::string, HeaderEntry, std::less<>> tensors;  ///< by name
  std::map<std::string, std::string> metadata;              ///< free-form texts
};

/// Parses the JSON text `json` of a header; every tensor has exactly dtype, shape and two data_offsets, each
/// key once.
/// \param json   begins with '{'
/// \param source file name for error texts
/// \throws FileError naming the file, the tensor and what was expected
Header parse_header(std::string_view json, const std::string& source);

}  // namespace kformer::Impl
