// SPDX-License-Identifier: MIT
#include "sweep/tensor_output.hpp"

#include <fmt/format.h>

#include <set>
#include <utility>

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

std::string combination_of(const TensorLabel& label) {
  std::string combination = fmt::format("{}-{}-{}", label.execution_space, label.dtype, label.impl);
  for (const auto& [key, value] : label.options) combination += fmt::format("-{}-{}", key, value);
  return combination;
}

void require_place_of(const std::filesystem::path& file, const std::filesystem::path& input,
                      const std::filesystem::path& results, bool replace) {
  const auto is_output = [&](const std::filesystem::path& other) {
    std::error_code ignored;
    return weakly_canonical(absolute(file), ignored) == weakly_canonical(absolute(other), ignored);
  };
  if (is_output(input)) refuse(file, "it is the file of 'tensors.input'; choose another name");
  if (is_output(results)) refuse(file, "it is the result file; choose another name");
  std::error_code ignored;
  const std::filesystem::path folder = file.parent_path();
  if (!folder.empty() && !is_directory(folder, ignored)) refuse(file, "there is no such folder");
  if (!exists(file, ignored)) return;
  if (!replace)
    refuse(file,
           "it exists already; choose another name, or allow overwriting (--overwrite, in a deck "
           "output.overwrite = true)");
  if (!are_tensors(file))
    refuse(file, "it is not a safetensors file and is never replaced; choose another name");
}

}  // namespace

// The first combination has the name in the deck.
TensorOutput::TensorOutput(const std::filesystem::path& file, std::vector<TensorLabel> labels)
    : m_labels(std::move(labels)) {
  if (file.empty()) return;
  const std::string first = combination_of(m_labels.front());
  for (const TensorLabel& label : m_labels) {
    std::filesystem::path& own = m_files.emplace_back(file);
    const std::string combination = combination_of(label);
    if (combination != first)
      own.replace_filename(file.stem().string() + "." + combination + file.extension().string());
  }
}

void TensorOutput::require_place(const std::filesystem::path& input, const std::filesystem::path& results,
                                 bool replace) const {
  for (const std::filesystem::path& file : std::set(m_files.begin(), m_files.end()))
    require_place_of(file, input, results, replace);
}

void TensorOutput::resume(std::size_t index) {
  if (!wanted()) return;
  const std::filesystem::path& file = m_files.at(index);
  if (std::filesystem::exists(file)) m_written[file] = SafetensorsFile::open(file).names().size();
}

void TensorOutput::write(std::size_t index, const measure::HostArrays& results) {
  if (!wanted() || results.empty()) return;
  const std::filesystem::path& file = m_files.at(index);
  const TensorLabel& label = m_labels.at(index);
  if (auto& size = m_written[file]; results.size() >= size) {
    std::map<std::string, std::string> metadata{{"dtype", label.dtype},
                                                {"impl", label.impl},
                                                {"execution_space", label.execution_space},
                                                {"software", measure::version_line(label.program)}};
    metadata.insert(label.options.begin(), label.options.end());
    write_tensors(file, results, label.dtype == "f64", metadata);
    size = results.size();
  }
}

void TensorOutput::report(std::FILE* log) const {
  for (const auto& [file, size] : m_written) say(log, "tensors: {} ({} tensors)\n", file.string(), size);
}

}  // namespace kformer::drivers
