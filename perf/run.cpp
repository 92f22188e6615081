// SPDX-License-Identifier: MIT
#include "run.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>

namespace kformer::perf {

std::string device_name() {
#if defined(KOKKOS_ENABLE_CUDA)
  return Space().cuda_device_prop().name;
#else
  return Space::name();
#endif
}

std::size_t rotated_bytes() {
  constexpr std::size_t caches = 4;
#if defined(KOKKOS_ENABLE_CUDA)
  return caches * static_cast<std::size_t>(Space().cuda_device_prop().l2CacheSize);
#else
  std::size_t largest = 0;
  for (const auto& cache : benchmark::CPUInfo::Get().caches)
    largest = std::max(largest, static_cast<std::size_t>(cache.size));
  return caches * largest;
#endif
}

std::string label_of(const measure::KernelNames& names) {
  const std::string& all = names.text();
  if (all.empty()) return "none";
  return all.find(' ') == std::string::npos ? all.substr(all.find(':') + 1) : all;
}

Array<std::int32_t*> random_integers(const Space& exec, std::uint64_t seed, std::int64_t count,
                                     std::int64_t end) {
  const Array<std::int32_t*> array("kformer::perf::integers", count);
  const std::uint64_t base = measure::mix(seed);
  Kokkos::parallel_for(
      "kformer::perf::random_integers", Kokkos::RangePolicy<Space>(exec, 0, count),
      KOKKOS_LAMBDA(std::int64_t i) {
        const std::uint64_t bits = measure::mix(base + static_cast<std::uint64_t>(i));
        array(i) = static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(end));
      });
  return array;
}

}  // namespace kformer::perf
