// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kformer::measure {

/// NVIDIA's management library, loaded at run time: a machine without it lacks only its figures.
class Nvml {
 public:
  /// Loads the library of that name or path, as `dlopen` finds it.
  explicit Nvml(const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;             ///< started once, ended once
  Nvml& operator=(const Nvml&) = delete;  ///< started once, ended once

  /// Bytes in use on the device at that PCI address ("0000:65:00.0") by all processes together; nothing if the
  /// library or the device is absent or does not answer.
  std::optional<std::uint64_t> used_bytes(const std::string& pci_address) const;

 private:
  void* m_library = nullptr;  // null unless it was started
};

}  // namespace kformer::measure
