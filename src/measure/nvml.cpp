// SPDX-License-Identifier: MIT
#include "measure/nvml.hpp"

#include <dlfcn.h>

namespace kformer::measure {

namespace {

// As NVIDIA documents its library: 0 is success, a device is an opaque handle.
using Status = int;
using Device = struct NvmlDevice*;
struct Memory {
  unsigned long long total, free, used;
};

template <class Function>
Function* function(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

Nvml::Nvml(const char* library) : m_library(dlopen(library, RTLD_LAZY | RTLD_LOCAL)) {
  if (m_library == nullptr) return;
  const auto start = function<Status()>(m_library, "nvmlInit_v2");
  if (start != nullptr && start() == 0) return;
  dlclose(m_library);
  m_library = nullptr;
}

Nvml::~Nvml() {
  if (m_library == nullptr) return;
  if (const auto stop = function<Status()>(m_library, "nvmlShutdown")) stop();
  dlclose(m_library);
}

std::optional<std::uint64_t> Nvml::used_bytes(const std::string& pci_address) const {
  if (m_library == nullptr) return {};
  const auto find = function<Status(const char*, Device*)>(m_library, "nvmlDeviceGetHandleByPciBusId_v2");
  const auto ask = function<Status(Device, Memory*)>(m_library, "nvmlDeviceGetMemoryInfo");
  Device device = nullptr;
  Memory memory{};
  if (find == nullptr || ask == nullptr || find(pci_address.c_str(), &device) != 0 || ask(device, &memory) != 0)
    return {};
  return memory.used;
}

}  // namespace kformer::measure
