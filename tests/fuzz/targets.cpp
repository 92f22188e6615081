// SPDX-License-Identifier: MIT
#include "fuzz/targets.hpp"

#include "kformer/core/error.hpp"

namespace kformer::Testing {

const FuzzTarget* find_fuzz_target(std::string_view name) {
  for (const auto& targets : {checkpoint_targets(), adapter_targets(), training_targets(), tensor_targets(),
                              text_targets(), data_targets(), hdf5_targets(), deck_targets()})
    for (const FuzzTarget& target : targets)
      if (target.name == name) return &target;
  return nullptr;
}

bool is_read(const FuzzTarget& target, std::string_view bytes) {
  try {
    target.read(bytes);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace kformer::Testing
