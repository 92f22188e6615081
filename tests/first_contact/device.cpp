// SPDX-License-Identifier: MIT
#include "first_contact/device.hpp"

#if defined(__CUDACC__)
#include <dlfcn.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>

#include "kformer/core/error.hpp"

namespace kformer::FirstContact {

#if defined(__CUDACC__)

namespace {

constexpr int skipped = 77;

using Impl::cuda::check;

std::string version(int number) {
  return std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10);
}

/// Why no device was found, when the runtime says `error`.
Unavailable reason(cudaError_t error) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0 && !dlopen("libcuda.so.1", RTLD_LAZY))
    return {skipped, std::string("skipped: there is no CUDA driver here: ") + dlerror()};
  if (driver == 0) return {1, "the driver does not start: libcuda.so.1 lacks the functions of a driver"};
  if (error == cudaErrorNoDevice)
    return {skipped,
            "skipped: there is no such device here: the driver, of CUDA " + version(driver) + ", finds none"};
  if (error == cudaErrorInsufficientDriver)
    return {1, "the driver is too old: it is of CUDA " + version(driver) + ", this program of CUDA " +
                   version(runtime) + "; install a newer driver"};
  return {1, std::string("the driver does not start: CUDA says: ") + cudaGetErrorString(error)};
}

}  // namespace

Device find_device() {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error != cudaSuccess) throw reason(error);
  cudaDeviceProp device{};
  error = cudaGetDeviceProperties(&device, 0);
  if (error == cudaSuccess) error = cudaFree(nullptr);  // makes the context
  if (error != cudaSuccess) throw reason(error);
  return {device.name, 10 * device.major + device.minor, device.multiProcessorCount};
}

Memory::Memory(std::size_t bytes) : m_size(bytes) {
  void* data = nullptr;
  check(cudaMalloc(&data, bytes), "cudaMalloc");
  m_data = static_cast<std::byte*>(data);
}
Memory::~Memory() { cudaFree(m_data); }
void Memory::write(const std::byte* from) {
  check(cudaMemcpy(m_data, from, m_size, cudaMemcpyHostToDevice), "cudaMemcpy");
}
void Memory::read(std::byte* to) const {
  check(cudaMemcpy(to, m_data, m_size, cudaMemcpyDeviceToHost), "cudaMemcpy");
}

void wait_for_device() { check(cudaDeviceSynchronize(), "the kernel"); }

double seconds_of(const std::function<void()>& launch) {
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  float least = 0;
  for (int turn = 0; turn < 10; ++turn) {
    check(cudaEventRecord(begin), "cudaEventRecord");
    launch();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "the kernel");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    least = turn == 0 ? milliseconds : std::min(least, milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return 1e-3 * static_cast<double>(least);
}

#else

Device find_device() { return {"an emulated block", 90, 2}; }

constexpr std::align_val_t alignment{256};  // that of cudaMalloc
Memory::Memory(std::size_t bytes) : m_data(new(alignment) std::byte[bytes]), m_size(bytes) {}
Memory::~Memory() { operator delete[](m_data, alignment); }
void Memory::write(const std::byte* from) { std::memcpy(m_data, from, m_size); }
void Memory::read(std::byte* to) const { std::memcpy(to, m_data, m_size); }

void wait_for_device() {}
double seconds_of(const std::function<void()>&) { return -1; }

#endif

}  // namespace kformer::FirstContact
