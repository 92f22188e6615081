// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "ops/common/cuda/launch.hpp"

/// \file
/// The device of the first contact: a GPU under nvcc, otherwise the emulated block.

namespace kformer::FirstContact {

using Impl::cuda::Stream;

/// How a program that cannot run its kernels ends: a test that lacks something here has code 77.
struct Unavailable {
  int exit_code;
  std::string why;
};

/// The device in words, its compute capability as 10 · major + minor, and how many multiprocessors it has.
struct Device {
  std::string name;
  int capability, multiprocessors;
};
/// \throws Unavailable with a sentence
Device find_device();

/// Memory of the device. \throws Error if there is none left
class Memory {
 public:
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return m_data; }
  std::size_t size() const { return m_size; }
  void write(const std::byte* from);
  /// What is there when everything that was launched is done.
  void read(std::byte* to) const;

 private:
  std::byte* m_data = nullptr;
  std::size_t m_size;
};

/// Waits for what was launched. \throws Error with what CUDA says of it
void wait_for_device();

/// Seconds of a call by events, the least of some; below 0 where nothing is timed.
double seconds_of(const std::function<void()>& launch);

}  // namespace kformer::FirstContact
