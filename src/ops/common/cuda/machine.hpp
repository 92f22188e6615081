// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>

/// \file
/// What a multiprocessor has, by compute capability, and how much of it the blocks of a kernel fill. From the
/// "Technical Specifications per Compute Capability" of the CUDA programming guide; granularities as in the
/// toolkit's cuda_occupancy.h. Plain C++: hosts without CUDA check the kernels against it too.

namespace kformer::Impl::cuda {

inline constexpr int warp_size = 32;

/// The limits of a multiprocessor.
struct Machine {
  int capability;              ///< compute capability, 10 · major + minor
  int threads;                 ///< resident at once
  int blocks;                  ///< resident at once
  int shared_bytes;            ///< of all resident blocks
  int shared_bytes_per_block;  ///< at most, when the kernel asks for more than 48 KB

  // The same for all of them.
  static constexpr int registers = 64 * 1024;  ///< of 32 bits, of all resident blocks
  static constexpr int registers_per_thread = 255;
  static constexpr int register_granularity = 256;  ///< registers are given to warps in units of this many
  static constexpr int partitions = 4;              ///< a warp has registers of one quarter
  static constexpr int threads_per_block = 1024;
  static constexpr int shared_granularity = 128;
  static constexpr int reserved_shared_bytes = 1024;  ///< of each block, by the system
};

inline constexpr Machine machines[] = {
    {80, 2048, 32, 164 * 1024, 163 * 1024}, {86, 1536, 16, 100 * 1024, 99 * 1024},
    {89, 1536, 24, 100 * 1024, 99 * 1024},  {90, 2048, 32, 228 * 1024, 227 * 1024},
    {120, 1536, 24, 100 * 1024, 99 * 1024},
};

/// The machine of a compute capability that is in the table.
constexpr const Machine& machine(int capability) {
  int i = 0;
  while (machines[i].capability != capability) ++i;  // past the end is an error where it is a constant
  return machines[i];
}

/// What is known of a device of compute capability 8.0 or later: the machine of its capability, or the last one
/// before it.
constexpr const Machine& machine_of_device(int capability) {
  const Machine* found = machines;
  for (const Machine& m : machines)
    if (m.capability <= capability) found = &m;
  return *found;
}

/// Machines by the shared memory of a multiprocessor, for tables of tiles: 100 KB, or 164 KB and more.
enum class SharedMemory { small, large };
constexpr SharedMemory shared_memory(const Machine& m) {
  return m.shared_bytes >= 164 * 1024 ? SharedMemory::large : SharedMemory::small;
}

/// Cards by their product names.
struct Preset {
  const char* name;
  const Machine& limits;
};
inline constexpr Preset presets[] = {
    {"A100", machine(80)},     {"RTX 3090", machine(86)},  {"RTX 3090 Ti", machine(86)},
    {"RTX 4090", machine(89)}, {"L40S", machine(89)},      {"H100", machine(90)},
    {"H200", machine(90)},     {"RTX 5080", machine(120)}, {"RTX 5090", machine(120)},
};

/// How many blocks of a kernel one multiprocessor holds at once.
struct Occupancy {
  int blocks, warps;
  double fraction;  ///< of the warps that could be resident
};

/// The theoretical occupancy of blocks of `threads` threads that use `registers` each and `shared_bytes` of
/// shared memory together. No blocks where one does not fit.
constexpr Occupancy occupancy(const Machine& m, int threads, int registers, int shared_bytes) {
  const auto round_up = [](int x, int unit) { return (x + unit - 1) / unit * unit; };
  if (threads < 1 || threads > Machine::threads_per_block || registers > Machine::registers_per_thread ||
      shared_bytes > m.shared_bytes_per_block)
    return {};
  const int warps = round_up(threads, warp_size) / warp_size, most_warps = m.threads / warp_size;
  const int warp_registers =
      round_up((registers > 0 ? registers : 1) * warp_size, Machine::register_granularity);
  const int warps_by_registers =
      Machine::partitions * (Machine::registers / Machine::partitions / warp_registers);
  const int block_bytes = round_up(shared_bytes + Machine::reserved_shared_bytes, Machine::shared_granularity);
  int blocks = m.blocks;
  for (const int limit : {most_warps / warps, warps_by_registers / warps, m.shared_bytes / block_bytes})
    if (limit < blocks) blocks = limit;
  return {blocks, blocks * warps, static_cast<double>(blocks * warps) / most_warps};
}

/// Whether kernel K runs there: everywhere, unless it has a `runs_on` of its own.
template <class K>
constexpr bool runs_on(const Machine& m) {
  if constexpr (requires { K::runs_on(m); })
    return K::runs_on(m);
  else
    return true;
}

/// Whether a multiprocessor holds as many blocks of K as K promises the compiler, with the registers that it
/// then may take.
template <class K>
constexpr bool fits(const Machine& m) {
  constexpr int share = Machine::registers / (K::threads * K::blocks_per_multiprocessor);
  constexpr int registers =
      share < Machine::registers_per_thread ? share / 8 * 8 : Machine::registers_per_thread;
  return registers > 0 &&
         occupancy(m, K::threads, registers, K::shared_bytes).blocks >= K::blocks_per_multiprocessor;
}

/// The same on every machine that K runs on.
template <class K>
constexpr bool fits_its_machines() {
  for (const Machine& m : machines)
    if (runs_on<K>(m) && !fits<K>(m)) return false;
  return true;
}

}  // namespace kformer::Impl::cuda
