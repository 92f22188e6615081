// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "first_contact/device.hpp"
#include "support/compare.hpp"

/// \file
/// Arrays of the device, between elements that no kernel may touch, and their judgement by the rule of tolerance.

namespace kformer::FirstContact {

using Impl::HostTensor;
using Testing::naive_t;

/// A dense array of numbers stored as T. Until it is filled it is NaN (or as many bits that are set).
template <class T>
class Array {
 public:
  explicit Array(std::vector<std::int64_t> extents)
      : m_extents(std::move(extents)),
        m_size(static_cast<std::size_t>(
            std::accumulate(m_extents.begin(), m_extents.end(), std::int64_t(1), std::multiplies<>()))),
        m_memory((m_size + 2 * guard) * sizeof(T)),
        m_bytes(m_memory.size(), std::byte(0xff)) {
    m_memory.write(m_bytes.data());
  }

  /// Element i is `f(i)`.
  template <class F>
  Array& fill(F f) {
    for (std::size_t i = 0; i < m_size; ++i) values()[i] = T(f(i));
    m_memory.write(m_bytes.data());
    return *this;
  }
  /// Normally distributed.
  Array& random(std::mt19937& generator, double deviation = 1, double mean = 0) {
    std::normal_distribution<double> normal(mean, deviation);
    return fill([&](std::size_t) { return static_cast<compute_t<T>>(normal(generator)); });
  }

  T* data() const { return reinterpret_cast<T*>(m_memory.data()) + guard; }

  /// As it is on the device.
  template <class Real>
  HostTensor<Real> read() {
    m_memory.read(m_bytes.data());
    TensorRef host;
    host.data = values(), host.dtype = dtype_of<T>, host.rank = static_cast<int>(m_extents.size());
    std::int64_t stride = 1;
    for (int r = host.rank - 1; r >= 0; --r) {
      host.extent[r] = m_extents[r], host.stride[r] = stride;
      stride *= m_extents[r];
    }
    return Impl::read_tensor<Real>(host);
  }

  /// Empty if what is there agrees with the reference, else a sentence. `naive` is the reference with the errors
  /// that it expects.
  template <class C>
  std::string judge(const char* name, const HostTensor<Impl::Estimated<C>>& naive) {
    return judge(name, Testing::exact_values(naive), naive);
  }
  /// The same by a reference and a naive computation apart.
  template <class Real, class Naive>
  std::string judge(const char* name, const HostTensor<Real>& reference, const HostTensor<Naive>& naive) {
    const Testing::Comparison c = Testing::compare_as(dtype_of<T>, read<Real>(), reference, naive);
    if (!c.ok) return std::string(name) + ": " + c.report;
    return judge_outside(name);
  }
  /// Empty if nothing outside of the array has changed, else a sentence.
  std::string judge_outside(const char* name) {
    m_memory.read(m_bytes.data());
    const std::size_t outside = guard * sizeof(T);
    for (std::size_t i = 0; i < outside; ++i)
      if (m_bytes[i] != std::byte(0xff) || m_bytes[m_bytes.size() - 1 - i] != std::byte(0xff))
        return std::string(name) + ": elements outside of the array have changed";
    return {};
  }

 private:
  static constexpr std::size_t guard = 64;  // the array stays as aligned as the memory

  T* values() { return reinterpret_cast<T*>(m_bytes.data()) + guard; }

  std::vector<std::int64_t> m_extents;
  std::size_t m_size;
  Memory m_memory;
  std::vector<std::byte> m_bytes;
};

/// `f.operator()<T>()` for the storage types of most kernels.
template <class F>
void with_types(F f) {
  f.template operator()<float>();
  f.template operator()<bf16>();
  f.template operator()<f16>();
}

/// The first that is not empty, or nothing.
inline std::string first_of(std::initializer_list<std::string> reasons) {
  for (const std::string& why : reasons)
    if (!why.empty()) return why;
  return {};
}

}  // namespace kformer::FirstContact
