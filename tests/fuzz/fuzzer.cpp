// SPDX-License-Identifier: MIT
// The program kformer_fuzz_<target> of libFuzzer.
#include <cstddef>
#include <cstdint>

#include "fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const kformer::Testing::FuzzTarget& target = *kformer::Testing::find_fuzz_target(KFORMER_FUZZ_TARGET);
  kformer::Testing::is_read(target, {reinterpret_cast<const char*>(data), size});
  return 0;
}
