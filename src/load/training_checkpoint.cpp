// SPDX-License-Identifier: MIT
#include "kformer/load/training_checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>
#include <system_error>

#include "io/atomic_file.hpp"
#include "io/xxh64.hpp"
#include "kformer/core/stored_type.hpp"
#include "load/safetensors_array.hpp"

namespace kformer {
namespace {

using Entries = std::map<std::string, TensorEntry>;

constexpr const char* format_name = "kformer training checkpoint 1";
constexpr std::string_view prefix = "step-", suffix = ".safetensors";
constexpr std::string_view column_prefix = "columns/";

/// The step in the name of a checkpoint, or nothing for other names.
std::optional<std::int64_t> step_in(std::string_view name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size())
    return {};
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc() && end == name.data() + name.size() && step >= 0 ? std::optional(step)
                                                                               : std::nullopt;
}

/// The checkpoints in a folder by step.
std::map<std::int64_t, std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::map<std::int64_t, std::filesystem::path> files;
  std::error_code none;  // the folder may be absent
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (const auto step = step_in(entry.path().filename().string())) files[*step] = entry.path();
  return files;
}

/// Whether a file says that it is a checkpoint; its name alone does not.
bool is_checkpoint(const std::filesystem::path& path) {
  try {
    const SafetensorsFile file = SafetensorsFile::open(path);
    const auto format = file.metadata().find("format");
    return format != file.metadata().end() && format->second == format_name;
  } catch (const FileError&) {
    return false;
  }
}

std::string checksum_of(std::int64_t step, const std::string& metadata, const Entries& entries) {
  std::uint64_t hash = 0;
  const auto add_text = [&](const std::string& text) {
    hash = Impl::xxh64(std::as_bytes(std::span(text)), hash);
  };
  add_text(std::to_string(step));
  add_text(metadata);
  for (const auto& [name, entry] : entries) {
    add_text(name);
    add_text(fmt::format("{}{}", entry.dtype, entry.shape));
    hash = Impl::xxh64(entry.bytes, hash);
  }
  return fmt::format("{:016x}", hash);
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw FileError(fmt::format("'{}' {}", path.string(), reason));
}

}  // namespace

namespace Impl {

void CheckpointFolder::create() const {
  std::error_code error;
  std::filesystem::create_directories(m_options.folder, error);
  if (error)
    throw FileError(fmt::format("cannot make the folder '{}' for checkpoints: {}", m_options.folder.string(),
                                error.message()));
  // What a killed run left half-written.
  remove_half_written(m_options.folder, [](const std::string& name) { return step_in(name).has_value(); });
}

void CheckpointFolder::wait() {
  if (m_pending.valid()) m_pending.get();
}

void CheckpointFolder::write(std::int64_t step, const std::string& metadata, CheckpointColumns columns,
                             const std::vector<NamedArray>& arrays) {
  if (!m_options.background) return replace(step, metadata, columns, arrays);
  m_pending = std::async(std::launch::async, [this, step, metadata, columns = std::move(columns), &arrays] {
    replace(step, metadata, columns, arrays);
  });
}

void CheckpointFolder::replace(std::int64_t step, const std::string& metadata, const CheckpointColumns& columns,
                               const std::vector<NamedArray>& arrays) const {
  Entries entries;
  SafetensorsWriter file;
  for (const auto& [name, array] : arrays) {
    const auto* data = static_cast<const std::byte*>(array.data);
    const std::size_t bytes = static_cast<std::size_t>(array.size()) * size_of(array.dtype);
    entries.emplace(name, TensorEntry{name_in_files(array.dtype), shape_of(array), {data, bytes}});
    file.add(name, name_in_files(array.dtype), shape_of(array), data);
  }
  for (const auto& [name, column] : columns) {
    const std::string full = std::string(column_prefix) + name;
    const std::size_t count = column.bytes.size() / (column.dtype == "U8" ? 1 : sizeof(double));
    entries.emplace(full, TensorEntry{column.dtype, {count}, column.bytes});
    file.add(full, column.dtype, {count}, column.bytes.data());
  }
  file.metadata("format", format_name);
  file.metadata("step", std::to_string(step));
  file.metadata("metadata", metadata);
  file.metadata("checksum", checksum_of(step, metadata, entries));
  file.write(m_options.folder / fmt::format("{}{:08}{}", prefix, step, suffix));
  rotate(step);
}

// Files of later steps are of a run that this one does not continue: they neither stay in place of this run's files nor
// are they this run's to delete. Nor is what only has the name of a checkpoint.
void CheckpointFolder::rotate(std::int64_t step) const {
  std::vector<std::filesystem::path> old;
  const auto keep = static_cast<std::size_t>(m_options.keep);
  if (keep > 0)
    for (const auto& [of, path] : files_in(m_options.folder))
      if (of <= step && is_checkpoint(path)) old.push_back(path);
  old.resize(old.size() - std::min(keep, old.size()));
  for (const std::filesystem::path& path : old) {
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error) throw FileError(fmt::format("cannot delete '{}': {}", path.string(), error.message()));
  }
}

}  // namespace Impl

TrainingCheckpoint::TrainingCheckpoint(std::filesystem::path path, SafetensorsFile file)
    : m_path(std::move(path)), m_file(std::move(file)) {
  const auto text = [&](const char* key) -> const std::string& {
    const auto place = m_file.metadata().find(key);
    if (place == m_file.metadata().end())
      refuse(m_path, fmt::format("is not a training checkpoint: its metadata have no '{}'", key));
    return place->second;
  };
  if (text("format") != format_name)
    refuse(m_path, fmt::format("is not a training checkpoint: its format is '{}', expected '{}'",
                               text("format"), format_name));
  const std::string& step = text("step");
  std::from_chars(step.data(), step.data() + step.size(), m_step);
  Entries entries;
  for (const std::string& name : m_file.names()) entries.emplace(name, m_file.at(name));
  const std::string found = checksum_of(m_step, text("metadata"), entries);
  if (found != text("checksum"))
    refuse(m_path,
           fmt::format("is damaged: the checksum of its contents is {}, expected {}", found, text("checksum")));
  for (const std::string& name : m_file.names()) m_file.release(name);
}

TrainingCheckpoint TrainingCheckpoint::open(const std::filesystem::path& path) {
  return {path, SafetensorsFile::open(path)};
}

void TrainingCheckpoint::check_against(std::span<const NamedArray> arrays) const {
  for (const NamedArray& a : arrays) {
    const TensorEntry& entry = m_file.at(a.name);
    const std::vector<std::size_t> shape = Impl::shape_of(a.array);
    const std::string type = name_in_files(a.array.dtype);
    if (entry.dtype != type || entry.shape != shape)
      refuse(m_path, fmt::format("belongs to another run: '{}' is {} {} there, and {} {} in this run", a.name,
                                 entry.dtype, entry.shape, type, shape));
  }
  for (const std::string& name : m_file.names())
    if (!name.starts_with(column_prefix) &&
        std::none_of(arrays.begin(), arrays.end(), [&](const NamedArray& a) { return a.name == name; }))
      refuse(m_path, fmt::format("belongs to another run: this one has no array '{}'", name));
}

CheckpointColumns TrainingCheckpoint::columns() const {
  CheckpointColumns columns;
  for (const std::string& name : m_file.names())
    if (name.starts_with(column_prefix)) {
      const TensorEntry& entry = m_file.at(name);
      columns[name.substr(column_prefix.size())] = {entry.dtype, {entry.bytes.begin(), entry.bytes.end()}};
    }
  return columns;
}

std::vector<std::filesystem::path> training_checkpoints_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& [step, path] : files_in(folder)) {
    try {
      const SafetensorsFile file = SafetensorsFile::open(path);
      const auto format = file.metadata().find("format");
      if (format != file.metadata().end() && format->second == format_name) found.push_back(path);
    } catch (const FileError&) {
      continue;  // Nobody can say whose it is.
    }
  }
  return found;
}

std::optional<TrainingCheckpoint> newest_good_checkpoint(
    const std::filesystem::path& folder, const std::function<void(const std::string&)>& skipped) {
  const auto files = files_in(folder);
  for (auto file = files.rbegin(); file != files.rend(); ++file) {
    try {
      return TrainingCheckpoint::open(file->second);
    } catch (const FileError& error) {
      if (skipped) skipped(error.what());
    }
  }
  return {};
}

}  // namespace kformer
