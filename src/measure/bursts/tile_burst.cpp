// SPDX-License-Identifier: MIT
#include "measure/bursts/tile_burst.hpp"

#ifdef KFORMER_BURSTS_X86
#include "measure/bursts/tile_burst_kernel.hpp"
#include "ops/linear/host/amx/instructions.hpp"
#include "ops/linear/host/amx/processor.hpp"
#endif

namespace kformer::measure {

const ArithmeticBurst<float>& tile_burst() {
  static constexpr ArithmeticBurst<float> none{};
#ifdef KFORMER_BURSTS_X86
  using Burst = TileBurst<Impl::simd::KFORMER_ISA::TileRegisters>;
  static constexpr ArithmeticBurst<float> amx{Burst::run, Burst::flops_per_iteration};
  if (Impl::host::amx_refusal().empty()) return amx;
#endif
  return none;
}

std::string burst_instructions() {
  std::string all = host_bursts().instructions;
  if (tile_burst().run != nullptr) all += "+amx";
  return all;
}

}  // namespace kformer::measure
