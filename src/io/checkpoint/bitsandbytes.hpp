// SPDX-License-Identifier: MIT
#pragma once

#include "io/checkpoint/contents.hpp"

/// \file
/// Weights in 4 bits as transformers and bitsandbytes write them: beside `<name>` of type U8 there are tensors
/// `<name>.absmax`, `.nested_absmax`, `.nested_quant_map`, `.quant_map` and `.quant_state.bitsandbytes__nf4`, the last one
/// with a text in JSON. They can be in several shards.

namespace kformer::Impl {

/// Makes one tensor of NF4 of each such group. Its bytes are arranged on first access.
/// \returns whether there are any
/// \throws FileError naming the checkpoint, the tensor, and what was expected
bool join_bitsandbytes(CheckpointContents& contents);

}  // namespace kformer::Impl
