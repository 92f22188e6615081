// SPDX-License-Identifier: MIT
#include "fuzz/targets.hpp"

#include <stdexcept>
#include <string>

#include "fuzz/held_bytes.hpp"
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
  const HeldBytes held;
  bool read = true;
  try {
    target.read(bytes);
  } catch (const Error&) {
    read = false;
  }
  if (const std::size_t most = held.most(), allowed = allowed_bytes(bytes.size()); most > allowed)
    throw std::logic_error(std::string(target.name) + " held " + std::to_string(most) +
                           " bytes for an input of " + std::to_string(bytes.size()) + "; allowed are " +
                           std::to_string(allowed));
  return read;
}

}  // namespace kformer::Testing
