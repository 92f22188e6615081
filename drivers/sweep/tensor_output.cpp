// SPDX-License-Identifier: MIT
#include "sweep/tensor_output.hpp"

#include <fmt/format.h>

#include "kformer/io/safetensors.hpp"
#include "measure/provenance.hpp"

namespace kformer::drivers {

namespace {

void write_tensors(const std::filesystem::path& file, const measure::HostArrays& results, bool as_f64,
                   const std::map<std::string, std::string>& metadata) {
  SafetensorsWriter writer;
  for (const auto& [key, value] : metadata) writer.metadata(key, value);
  std::map<std::string, std::vector<float>> narrow;  // the writer reads the data when it writes
  for (const auto& [name, array] : results) {
    if (as_f64) {
      writer.add(name, "F64", array.shape, array.values.data());
    } else {
      const auto& values = narrow[name] = std::vector<float>(array.values.begin(), array.values.end());
      writer.add(name, "F32", array.shape, values.data());
    }
  }
  writer.write(file);
}

}  // namespace

// The first combination has the name in the deck.
std::filesystem::path TensorOutput::file_of(const TensorLabel& label) {
  const std::string combination = fmt::format("{}-{}-{}", label.execution_space, label.dtype, label.impl);
  if (m_first.empty()) m_first = combination;
  std::filesystem::path file = m_file;
  if (combination != m_first)
    file.replace_filename(file.stem().string() + "." + combination + file.extension().string());
  return file;
}

void TensorOutput::resume(const TensorLabel& label) {
  if (!wanted()) return;
  const std::filesystem::path file = file_of(label);
  if (std::filesystem::exists(file)) m_written[file] = SafetensorsFile::open(file).names().size();
}

void TensorOutput::write(const TensorLabel& label, const measure::HostArrays& results) {
  if (!wanted() || results.empty()) return;
  const std::filesystem::path file = file_of(label);
  if (auto& size = m_written[file]; results.size() >= size) {
    write_tensors(file, results, label.dtype == "f64",
                  {{"dtype", label.dtype},
                   {"impl", label.impl},
                   {"execution_space", label.execution_space},
                   {"software", measure::version_line(label.program)}});
    size = results.size();
  }
}

void TensorOutput::report(std::FILE* log) const {
  for (const auto& [file, size] : m_written) fmt::print(log, "tensors: {} ({} tensors)\n", file.string(), size);
}

}  // namespace kformer::drivers
