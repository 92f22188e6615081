// SPDX-License-Identifier: MIT
#include "sweep/tensor_output.hpp"

#include <fmt/format.h>

#include "app/say.hpp"
#include "kformer/core/error.hpp"
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

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  throw FileError(fmt::format("cannot write tensors to '{}': {}", file.string(), why));
}

bool are_tensors(const std::filesystem::path& file) {
  try {
    SafetensorsFile::open(file);
    return true;
  } catch (const FileError&) {
    return false;
  }
}

}  // namespace

void TensorOutput::require_place(const std::filesystem::path& input, const std::filesystem::path& results,
                                 bool replace) const {
  if (!wanted()) return;
  const auto is_output = [&](const std::filesystem::path& other) {
    std::error_code ignored;
    return weakly_canonical(absolute(m_file), ignored) == weakly_canonical(absolute(other), ignored);
  };
  if (is_output(input)) refuse(m_file, "it is the file of 'tensors.input'; choose another name");
  if (is_output(results)) refuse(m_file, "it is the result file; choose another name");
  std::error_code ignored;
  const std::filesystem::path folder = m_file.parent_path();
  if (!folder.empty() && !is_directory(folder, ignored)) refuse(m_file, "there is no such folder");
  if (!exists(m_file, ignored)) return;
  if (!replace)
    refuse(m_file,
           "it exists already; choose another name, or allow overwriting (--overwrite, in a deck "
           "output.overwrite = true)");
  if (!are_tensors(m_file))
    refuse(m_file, "it is not a safetensors file and is never replaced; choose another name");
}

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
  for (const auto& [file, size] : m_written) say(log, "tensors: {} ({} tensors)\n", file.string(), size);
}

}  // namespace kformer::drivers
