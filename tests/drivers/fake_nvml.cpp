// SPDX-License-Identifier: MIT
// A management library with one device, at 0000:65:00.0; another, at 0000:66:00.0, does not answer.
#include <string_view>

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};

int starts = 0;

int nvmlInit_v2() {
  ++starts;
  return KFORMER_FAKE_NVML_INIT;
}
int nvmlShutdown() {
  --starts;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, const char** device) {
  if (starts != 1) return 1;
  for (const char* known : {"0000:65:00.0", "0000:66:00.0"})
    if (std::string_view(address) == known) {
      *device = known;
      return 0;
    }
  return 6;
}
int nvmlDeviceGetMemoryInfo(const char* device, Memory* memory) {
  if (std::string_view(device) != "0000:65:00.0") return 15;
  *memory = {96ull << 30, 53ull << 30, 43ull << 30};
  return 0;
}
}
