// SPDX-License-Identifier: MIT
// Writes and reads a tensor file with the installed library, without Kokkos.
#include <kformer/core/error.hpp>
#include <kformer/io/safetensors.hpp>

#include <cstdio>
#include <vector>

int main() {
  const char* path = "consumer.safetensors";
  const std::vector<float> written{1, -2, 0.5f};
  kformer::SafetensorsWriter writer;
  writer.add("values", "F32", {3}, written.data());
  writer.write(path);
  const std::vector<double> read = kformer::SafetensorsFile::open(path).read_f64("values");
  std::remove(path);
  if (read != std::vector<double>{1, -2, 0.5}) return 1;
  try {
    kformer::SafetensorsFile::open(path);
  } catch (const kformer::FileError&) {
    std::puts("the installed library works");
    return 0;
  }
  return 1;
}
