// SPDX-License-Identifier: MIT
#include "kformer/memory/memory_class.hpp"

namespace kformer {

const char* to_string(MemoryClass memory_class) {
  switch (memory_class) {
    case MemoryClass::weights:
      return "weights";
    case MemoryClass::gradients:
      return "gradients";
    case MemoryClass::optimizer:
      return "optimizer";
    case MemoryClass::activations:
      return "activations";
    case MemoryClass::kv_cache:
      return "kv_cache";
    case MemoryClass::workspace:
      return "workspace";
    case MemoryClass::communication:
      return "communication";
    case MemoryClass::io:
      return "io";
  }
  return "?";
}

}  // namespace kformer
