// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "measure/fill.hpp"
#include "measure/kernel_names.hpp"
#include "measure/timing.hpp"

namespace kformer::perf {

/// Where everything is timed: the GPU where Kokkos has one, otherwise the host.
using Space = Kokkos::DefaultExecutionSpace;

/// Whether that is the host.
inline constexpr bool on_host = Impl::is_host_space<Space>;

/// A dense array there.
template <class DataType>
using Array = Kokkos::View<DataType, Kokkos::LayoutRight, Space>;

/// The name of the GPU, or of the host space.
std::string device_name();

/// Bytes that lie between two uses of the same operand: four times its largest cache. Caches evict almost at random, and
/// would keep a good part of operands that are only slightly larger.
std::size_t rotated_bytes();

/// `kokkos` if one function was called, `linear_forward:host_blas rope_forward:kokkos …` if several were,
/// `none` without any.
std::string label_of(const measure::KernelNames& names);

/// A case with its operands in memory, warmed up and ready to be timed.
class Run {
 public:
  virtual ~Run() = default;
  /// Seconds of one call: of `launches()` calls from an idle instance to an idle instance, divided by their
  /// number. Each call takes the operands that have been out of the caches for longest.
  virtual double seconds() = 0;
  /// Calls between two fences: one on the host; on a device as many as take a millisecond, beside which a fence
  /// is short.
  virtual std::int64_t launches() const = 0;
  /// The same computed by the BLAS of this build alone, if it has one that can.
  virtual std::optional<double> blas_seconds() = 0;
  /// The names of the kernels that run.
  virtual const std::string& kernel() const = 0;
};

/// A call that knows the same computation by BLAS.
template <class Call>
concept HasBlas = requires(const Call& call, const Space& exec) { call.launch_blas(exec); };

/// Calls take turns over sets of operands, together more than `rotated` bytes. A `Call` is one set: `bytes()` of its operands,
/// and `launch(exec)`.
template <class Call>
class RotatingRun final : public Run {
 public:
  /// `make(exec, seed)` makes a call. The kernels that it chooses are named.
  template <class Make>
  RotatingRun(std::size_t rotated, const Make& make) {
    m_calls.push_back(make(m_exec, 0));
    constexpr std::size_t most = 256;  // operands may be tiny
    const std::size_t others = std::min(most, rotated / m_calls.front().bytes());
    for (std::size_t i = 1; i <= others; ++i) m_calls.push_back(make(m_exec, 16 * i));
    const measure::KernelNames names;
    for (const Call& call : m_calls) call.launch(m_exec);
    m_exec.fence("kformer::perf: warm-up");
    m_kernel = label_of(names);
    if (!on_host) m_launches = static_cast<std::int64_t>(1e-3 / seconds()) + 1;
  }

  double seconds() override {
    return seconds_of_next([this](const Call& call) { call.launch(m_exec); });
  }

  std::optional<double> blas_seconds() override {
    if constexpr (HasBlas<Call>)
      if (Call::blas_can()) return seconds_of_next([this](const Call& call) { call.launch_blas(m_exec); });
    return {};
  }

  std::int64_t launches() const override { return m_launches; }
  const std::string& kernel() const override { return m_kernel; }

 private:
  template <class Launch>
  double seconds_of_next(const Launch& launch) {
    const auto next = [&] {
      launch(m_calls[m_next]);
      m_next = (m_next + 1) % m_calls.size();
    };
    return measure::seconds_of(m_exec, next, m_launches) / static_cast<double>(m_launches);
  }

  Space m_exec;
  std::vector<Call> m_calls;
  std::size_t m_next = 0;
  std::int64_t m_launches = 1;
  std::string m_kernel;
};

/// Bytes of several arrays.
template <class... V>
std::size_t bytes_of(const V&... arrays) {
  return ((arrays.size() * sizeof(typename V::value_type)) + ... + 0);
}

/// An array of numbers in [−1, 1), the same for the same seed.
template <class DataType, class... Extents>
Array<DataType> random_array(const Space& exec, std::uint64_t seed, const char* label, Extents... extents) {
  Array<DataType> array(Kokkos::view_alloc(Kokkos::WithoutInitializing, std::string(label)), extents...);
  measure::fill_random(exec, array.data(), static_cast<std::int64_t>(array.size()), seed, 1);
  return array;
}

/// `count` times the same number.
template <class T>
Array<T*> constant_array(T value, const char* label, std::int64_t count) {
  const Array<T*> array(std::string(label), count);
  const auto host = Kokkos::create_mirror_view(array);
  std::fill_n(host.data(), count, value);
  Kokkos::deep_copy(array, host);
  return array;
}

/// Numbers in [0, end), the same for the same seed.
Array<std::int32_t*> random_integers(const Space& exec, std::uint64_t seed, std::int64_t count,
                                     std::int64_t end);

}  // namespace kformer::perf
