// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kformer::Impl {

/// The published name of a tensor in a GGUF file, or nothing for tensors of no supported model:
/// "blk.0.attn_q.weight" is "model.layers.0.self_attn.q_proj.weight".
std::optional<std::string> published_name(std::string_view gguf_name);

}  // namespace kformer::Impl
