// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "kformer/io/checkpoint_tensor.hpp"
#include "kformer/io/safetensors.hpp"

/// \file
/// Quantised weights in safetensors files: a tensor of type U8, and beside it the metadata
/// "kformer.quantized.<name>" = "TQ2_0 <out> <in>". Rows are padded to whole blocks; NF4 has floats behind them.

namespace kformer::Impl {

/// The metadata key of a quantised tensor.
std::string packed_key(const std::string& name);

/// The metadata text of a quantised tensor.
std::string packed_text(const CheckpointTensor& tensor);

/// The quantised tensors of a file.
/// \param path of the file, for error texts
/// \throws FileError naming the file, the tensor, and what was expected
std::map<std::string, CheckpointTensor> packed_tensors(const SafetensorsFile& file, const std::string& path);

}  // namespace kformer::Impl
