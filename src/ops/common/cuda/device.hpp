// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <string>

#include "ops/common/cuda/launch.hpp"

/// \file
/// Where CUDA kernels run: a device of Kokkos, or the emulated block on a host space.

namespace kformer::Impl::cuda {

/// A compute capability, 10 · major + minor.
inline std::string capability_refusal(int needed, int present) {
  if (present >= needed) return {};
  const auto text = [](int c) { return std::to_string(c / 10) + '.' + std::to_string(c % 10); };
  return "it needs compute capability >= " + text(needed) + ", this device is " + text(present);
}

/// For host spaces: kernels are emulated, whatever capability they need. Tests set the capability by which
/// tiles are chosen, and how many multiprocessors there are.
template <class Exec>
struct Device {
  static inline int emulated_capability = 1000, emulated_multiprocessors = 2;

  static void make_current(const Exec&) {}
  static Stream stream(const Exec&) { return {}; }
  static int capability() { return emulated_capability; }
  static int multiprocessors() { return emulated_multiprocessors; }
};

#if defined(KOKKOS_ENABLE_CUDA) && defined(__CUDACC__)
template <>
struct Device<Kokkos::Cuda> {
  /// Of the calling thread, whose current device is another where a process has several. Kokkos does the same before it launches.
  static void make_current(const Kokkos::Cuda& exec) {
    check(cudaSetDevice(exec.cuda_device()), "kformer: cudaSetDevice");
  }
  static Stream stream(const Kokkos::Cuda& exec) { return exec.cuda_stream(); }
  /// Of the device Kokkos runs on.
  static int capability() {
    static const int capability = [] {
      const cudaDeviceProp& device = Kokkos::Cuda().cuda_device_prop();
      return 10 * device.major + device.minor;
    }();
    return capability;
  }
  static int multiprocessors() { return Kokkos::Cuda().cuda_device_prop().multiProcessorCount; }
};
#endif

/// Shows the launches of `f`, on the device of `exec`, to Kokkos Tools as one kernel: they are not Kokkos'.
template <class Exec, class F>
void announced(const char* label, const Exec& exec, F f) {
  Device<Exec>::make_current(exec);
  std::uint64_t id = 0;
  Kokkos::Tools::beginParallelFor(label, Kokkos::Tools::Experimental::device_id(exec), &id);
  try {
    f();
  } catch (...) {
    Kokkos::Tools::endParallelFor(id);  // else whatever follows would lie inside of this kernel
    throw;
  }
  Kokkos::Tools::endParallelFor(id);
}

}  // namespace kformer::Impl::cuda
