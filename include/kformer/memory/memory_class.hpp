// SPDX-License-Identifier: MIT
#pragma once

namespace kformer {

/// What memory is for.
enum class MemoryClass { weights, gradients, optimizer, activations, kv_cache, workspace, communication, io };

/// The number of memory classes.
inline constexpr int memory_classes = 8;

/// The class's name in files and messages.
const char* to_string(MemoryClass memory_class);

}  // namespace kformer
