// SPDX-License-Identifier: MIT
#include "kformer/load/training_checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
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

/// The file of a rank.
std::string file_name(std::int64_t step, int rank, int ranks) {
  const std::string part = rank == 0 ? "" : fmt::format(".rank-{}-of-{}", rank, ranks);
  return fmt::format("{}{:08}{}{}", prefix, step, part, suffix);
}

/// The step in the name of the file of any rank, or nothing for other names.
std::optional<std::int64_t> step_of_any_rank(std::string_view name) {
  const std::size_t part = name.find(".rank-");
  if (part == std::string_view::npos) return step_in(name);
  const auto step = step_in(std::string(name.substr(0, part)) + std::string(suffix));
  const std::string_view rest = name.substr(part);
  int rank = 0, ranks = 0, length = 0;
  const std::string text(rest);
  if (std::sscanf(text.c_str(), ".rank-%d-of-%d.safetensors%n", &rank, &ranks, &length) != 2 ||
      static_cast<std::size_t>(length) != text.size())
    return {};
  return step;
}

/// The checkpoints in a folder by step.
std::map<std::int64_t, std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::map<std::int64_t, std::filesystem::path> files;
  std::error_code none;  // the folder may be absent
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    if (const auto step = step_in(entry.path().filename().string())) files[*step] = entry.path();
  return files;
}

/// Whether a file says that it is a checkpoint; its name alone does not. Whose one is that cannot be read nobody knows.
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

/// Elements that follow one another, both in a part and in the whole array.
struct Run {
  std::int64_t whole, part, size;
};

/// All of a part that begins at element `begin` of its columns.
std::vector<Run> runs_of(std::int64_t begin, std::int64_t size, const ColumnRange& columns) {
  if (columns.whole == 0) return {{begin, 0, size}};
  std::vector<Run> runs;
  const std::int64_t width = columns.end - columns.begin;
  for (std::int64_t done = 0; done < size; done += runs.back().size) {
    const std::int64_t row = (begin + done) / width, column = (begin + done) % width;
    runs.push_back({row * columns.whole + columns.begin + column, done, std::min(width - column, size - done)});
  }
  return runs;
}

/// Whether the elements of such a part have numbers in the whole array.
bool can_be_counted(std::int64_t begin, std::int64_t size, const ColumnRange& columns) {
  constexpr std::int64_t most = std::int64_t(1) << 62;
  if (begin > most - size) return false;
  return columns.whole == 0 || (begin + size) / (columns.end - columns.begin) < most / columns.whole;
}

std::string name_of_part(const NamedArray& array) {
  if (!array.begin) return array.name;
  const auto& [begin, end, whole] = array.columns;
  return fmt::format("{}#{}{}", array.name, *array.begin,
                     whole > 0 ? fmt::format(":{}-{}/{}", begin, end, whole) : "");
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
  if (m_options.rank == 0)
    remove_half_written(m_options.folder,
                        [](const std::string& name) { return step_of_any_rank(name).has_value(); });
}

void CheckpointFolder::wait() {
  if (m_pending.valid()) m_pending.get();
  complete();
}

// Only a checkpoint whose files are all there replaces an older one.
void CheckpointFolder::complete() {
  if (!m_written) return;
  const std::int64_t step = *m_written;
  m_written.reset();
  if (m_options.agree) m_options.agree();
  if (m_options.rank == 0) rotate(step);
}

void CheckpointFolder::write(std::int64_t step, const std::string& metadata, CheckpointColumns columns,
                             const std::vector<NamedArray>& arrays) {
  if (m_options.ranks > 1) m_written = step;
  if (!m_options.background) {
    replace(step, metadata, columns, arrays);
    return complete();
  }
  m_pending = std::async(std::launch::async, [this, step, metadata, columns = std::move(columns), &arrays] {
    replace(step, metadata, columns, arrays);
  });
}

void CheckpointFolder::replace(std::int64_t step, const std::string& metadata, const CheckpointColumns& columns,
                               const std::vector<NamedArray>& arrays) const {
  Entries entries;
  SafetensorsWriter file;
  for (const NamedArray& named : arrays) {
    const std::string name = name_of_part(named);
    const TensorRef& array = named.array;
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
  if (m_options.ranks > 1) file.metadata("ranks", std::to_string(m_options.ranks));
  file.metadata("checksum", checksum_of(step, metadata, entries));
  file.write(m_options.folder / file_name(step, m_options.rank, m_options.ranks));
  if (m_options.ranks == 1) rotate(step);
}

// Files of later steps are of a run that this one does not continue: they neither stay in place of this run's files nor
// are they this run's to delete. Nor is what only has the name of a checkpoint.
void CheckpointFolder::rotate(std::int64_t step) const {
  std::vector<std::int64_t> old;
  const auto keep = static_cast<std::size_t>(m_options.keep);
  if (keep > 0)
    for (const auto& [of, path] : files_in(m_options.folder))
      if (of <= step && is_checkpoint(path)) old.push_back(of);
  old.resize(old.size() - std::min(keep, old.size()));
  for (const std::int64_t of : old) remove_training_checkpoint(files_in(m_options.folder).at(of));
}

}  // namespace Impl

TrainingCheckpoint::TrainingCheckpoint(std::filesystem::path path) : m_path(std::move(path)) {
  add_file(m_path);
  const auto& metadata = m_files.front().metadata();
  if (const auto ranks = metadata.find("ranks"); ranks != metadata.end()) {
    const std::string& text = ranks->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), m_ranks);
    if (error != std::errc() || end != text.data() + text.size() || m_ranks < 1)
      refuse(m_path, fmt::format("is damaged: its number of ranks is '{}'", text));
  }
  for (int rank = 1; rank < m_ranks; ++rank) {
    const std::filesystem::path part = m_path.parent_path() / file_name(m_step, rank, m_ranks);
    if (!std::filesystem::exists(part))
      refuse(m_path, fmt::format("is incomplete: '{}' of rank {} is not there", part.string(), rank));
    add_file(part);
  }
  check_whole();
}

// Checks a file and notes what it has.
void TrainingCheckpoint::add_file(const std::filesystem::path& path) {
  const SafetensorsFile& file = m_files.emplace_back(SafetensorsFile::open(path));
  const auto text = [&](const char* key) -> const std::string& {
    const auto place = file.metadata().find(key);
    if (place == file.metadata().end())
      refuse(path, fmt::format("is not a training checkpoint: its metadata have no '{}'", key));
    return place->second;
  };
  if (text("format") != format_name)
    refuse(path, fmt::format("is not a training checkpoint: its format is '{}', expected '{}'", text("format"),
                             format_name));
  std::int64_t step = 0;
  std::from_chars(text("step").data(), text("step").data() + text("step").size(), step);
  if (m_files.size() == 1) m_step = step;
  Entries entries;
  for (const std::string& name : file.names()) entries.emplace(name, file.at(name));
  const std::string found = checksum_of(step, text("metadata"), entries);
  if (found != text("checksum"))
    refuse(path,
           fmt::format("is damaged: the checksum of its contents is {}, expected {}", found, text("checksum")));
  if (step != m_step || (m_files.size() > 1 && text("ranks") != m_files.front().metadata().at("ranks")))
    refuse(path,
           fmt::format("does not belong to '{}': its step or its number of ranks differs", m_path.string()));
  for (const auto& [name, entry] : entries) {
    file.release(name);
    if (name.starts_with(column_prefix)) continue;
    Stored stored{0, static_cast<std::int64_t>(entry.size()), {}, m_files.size() - 1, name, true};
    const std::size_t mark = name.find('#');
    if (mark != std::string::npos) {
      auto& [begin, end, whole] = stored.columns;
      const int numbers =
          std::sscanf(name.c_str() + mark, "#%ld:%ld-%ld/%ld", &stored.begin, &begin, &end, &whole);
      const bool is_part = numbers == 1 || (numbers == 4 && 0 <= begin && begin < end && end <= whole);
      if (!is_part || stored.begin < 0 || !can_be_counted(stored.begin, stored.size, stored.columns))
        refuse(path, fmt::format("is damaged: '{}' names no part of an array", name));
      stored.whole = false;
    }
    m_stored[name.substr(0, mark)].push_back(std::move(stored));
  }
}

// Parts of one type, whose runs follow one another.
void TrainingCheckpoint::check_whole() {
  for (const auto& [name, parts] : m_stored) {
    const std::string& type = m_files[parts.front().file].at(parts.front().entry).dtype;
    std::vector<Run> runs;
    for (const Stored& part : parts) {
      const std::string& found = m_files[part.file].at(part.entry).dtype;
      if (found != type)
        refuse(m_path,
               fmt::format("is damaged: the parts of '{}' are of the types {} and {}", name, type, found));
      for (const Run& run : runs_of(part.begin, part.size, part.columns)) runs.push_back(run);
    }
    std::ranges::sort(runs, {}, &Run::whole);
    std::int64_t& end = m_elements[name];
    for (const Run& run : runs) {
      if (run.whole != end || (parts.front().whole && parts.size() > 1))
        refuse(m_path, fmt::format("is damaged: '{}' has no element {} in any of its files", name, end));
      end = run.whole + run.size;
    }
  }
}

TrainingCheckpoint TrainingCheckpoint::open(const std::filesystem::path& path) {
  return TrainingCheckpoint(path);
}

void TrainingCheckpoint::check_against(std::span<const NamedArray> arrays, bool some) const {
  for (const NamedArray& a : arrays) {
    const auto place = m_stored.find(a.name);
    if (place == m_stored.end()) {
      m_files.front().at(a.name);  // says what is there
      refuse(m_path, fmt::format("belongs to another run: it has no array '{}'", a.name));
    }
    const std::vector<Stored>& parts = place->second;
    const TensorEntry& entry = m_files[parts.front().file].at(parts.front().entry);
    const std::vector<std::size_t> shape = Impl::shape_of(a.array);
    const std::string type = name_in_files(a.array.dtype);
    const std::int64_t elements = m_elements.at(a.name);
    const std::vector<Run> runs = runs_of(a.begin.value_or(0), a.array.size(), a.columns);
    const std::int64_t end = runs.empty() ? 0 : runs.back().whole + runs.back().size;
    // What is cut has lost its extents.
    const bool fits = !a.begin && parts.front().whole ? entry.shape == shape
                      : a.columns.whole > 0           ? end <= elements && elements % a.columns.whole == 0
                      : a.begin                       ? end <= elements
                                                      : end == elements;
    if (entry.dtype != type || !fits)
      refuse(m_path, fmt::format("belongs to another run: '{}' is {} {} there, and {} {} in this run", a.name,
                                 entry.dtype, entry.shape, type, shape));
  }
  if (some) return;
  for (const auto& [name, parts] : m_stored)
    if (std::ranges::find(arrays, name, &NamedArray::name) == arrays.end())
      refuse(m_path, fmt::format("belongs to another run: this one has no array '{}'", name));
}

std::vector<TrainingCheckpoint::Pieces> TrainingCheckpoint::pieces_of(const NamedArray& array) const {
  const std::vector<Run> wanted = runs_of(array.begin.value_or(0), array.array.size(), array.columns);
  const std::size_t element = size_of(array.array.dtype);
  const auto bytes = [&](std::int64_t elements) { return static_cast<std::size_t>(elements) * element; };
  std::vector<Pieces> all;
  for (const Stored& stored : m_stored.at(array.name)) {
    const SafetensorsFile& file = m_files[stored.file];
    const auto contents = file.at(stored.entry).bytes;
    const std::vector<Run> runs = runs_of(stored.begin, stored.size, stored.columns);
    std::vector<Piece> pieces;
    for (auto to = wanted.begin(), from = runs.begin(); to != wanted.end() && from != runs.end();) {
      const std::int64_t first = std::max(to->whole, from->whole);
      const std::int64_t last = std::min(to->whole + to->size, from->whole + from->size);
      if (first < last)
        pieces.push_back({contents.subspan(bytes(from->part + first - from->whole), bytes(last - first)),
                          bytes(to->part + first - to->whole)});
      if (to->whole + to->size == last)
        ++to;
      else
        ++from;
    }
    if (!pieces.empty()) all.push_back({&file, stored.entry, std::move(pieces)});
  }
  return all;
}

CheckpointColumns TrainingCheckpoint::columns() const {
  CheckpointColumns columns;
  const SafetensorsFile& file = m_files.front();
  for (const std::string& name : file.names())
    if (name.starts_with(column_prefix)) {
      const TensorEntry& entry = file.at(name);
      columns[name.substr(column_prefix.size())] = {entry.dtype, {entry.bytes.begin(), entry.bytes.end()}};
    }
  return columns;
}

// The file that lists it goes last: what a killed run left of a checkpoint is incomplete, and the next one finds it.
void remove_training_checkpoint(const std::filesystem::path& path) {
  const auto step = step_in(path.filename().string());
  std::vector<std::filesystem::path> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), none))
    if (entry.path() != path && step_of_any_rank(entry.path().filename().string()) == step)
      files.push_back(entry.path());
  files.push_back(path);
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    std::filesystem::remove(file, error);
    if (error) throw FileError(fmt::format("cannot delete '{}': {}", file.string(), error.message()));
  }
}

std::vector<std::filesystem::path> training_checkpoints_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  for (const auto& [step, path] : files_in(folder))
    if (is_checkpoint(path)) found.push_back(path);
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
