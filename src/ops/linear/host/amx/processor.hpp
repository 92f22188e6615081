// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

/// \file
/// Whether a process may use the tile registers of AMX. Free of Kokkos.

namespace kformer::Impl::host {

/// What the processor and the system say of AMX.
struct AmxState {
  std::uint32_t features = 0;  ///< EDX of CPUID, leaf 7: bit 22 AMX-BF16, 24 AMX-TILE, 25 AMX-INT8
  std::uint64_t enabled = 0;   ///< XCR0: bits 17 and 18 are the configuration of tiles and their data
  std::string denied;          ///< why the system gives this process no tiles; empty if it does

  /// Of this process. Asks Linux for its permission where the other two would do.
  static AmxState of_process();

  /// Empty if products of bf16 can run on tiles, else a sentence.
  std::string refusal() const;
};

/// `AmxState::of_process().refusal()`. The first call of a process asks; what Linux permits, it permits to
/// all threads, those that run and those to come.
const std::string& amx_refusal();

}  // namespace kformer::Impl::host
