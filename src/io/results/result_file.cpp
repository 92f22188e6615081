// SPDX-License-Identifier: MIT
#include "kformer/io/result_file.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include "io/atomic_file.hpp"
#include "io/results/existing_file.hpp"
#include "io/results/run_lock.hpp"
#include "io/results/schema_text.hpp"
#include "io/results/serialize.hpp"
#include "io/results/unfinished_file.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/hdf5.hpp"

namespace kformer {
namespace {

const std::string root_path;

// A minor version more for what readers of the version before need not know.
const std::string format_version = "1.1";

using Impl::ExistingFile;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& advice) {
  throw FileError("'" + path.string() + "' exists already; " + advice);
}

}  // namespace

struct ResultFile::Contents : Impl::ResultContents {
  Contents(const std::filesystem::path& file, bool discard) : path(file) {
    if (!discard) lock.emplace(file);
  }

  std::filesystem::path path;
  std::optional<Impl::RunLock> lock;
  ResultFileOptions options;
  int exceptions = std::uncaught_exceptions();
  std::optional<Impl::UnfinishedFile> unfinished;
};

ResultFile::ResultFile(std::filesystem::path path, ResultFileOptions options)
    : m_contents(std::make_unique<Contents>(path, options.discard)) {
  if (options.compression < 0 || options.compression > 9) {
    throw Error("kformer::ResultFile: compression must be 0 to 9, not " + std::to_string(options.compression));
  }
  m_contents->options = options;
  root()
      .attribute("schema", "kformer-results", "by which programs recognise these files")
      .attribute("schema_version", format_version, "of the format of the file")
      .attribute("Conventions", "CF-1.10 kformer-" + format_version, "which the attributes follow")
      .attribute("complete", false, "1 if the run came to its end");
  if (options.discard) return;
  const auto existing = Impl::existing_file(path), unfinished = Impl::existing_file(part_path());
  for (const auto& [what, file] : {std::pair(existing, path), std::pair(unfinished, part_path())})
    if (what == ExistingFile::foreign)
      refuse(file,
             file == path
                 ? "it is not a result file and is never replaced; choose another name"
                 : "it is not a whole result file and is never replaced; remove it, or choose another name");
  if (!options.overwrite) {
    if (existing != ExistingFile::none)
      refuse(path,
             "choose another name, or allow overwriting (--overwrite, in a deck output.overwrite = true)");
    if (unfinished == ExistingFile::with_cases && !options.resume)
      refuse(part_path(),
             "it holds the finished cases of an unfinished run; go on with them (--resume) where the program "
             "can, move it away, or allow overwriting (--overwrite, in a deck output.overwrite = true)");
  }
  const std::filesystem::path folder = path.parent_path();
  Impl::remove_half_written(folder.empty() ? "." : folder,
                            [&](const std::string& name) { return name == part_path().filename().string(); });
  if (options.resume && unfinished == ExistingFile::with_cases)
    m_contents->unfinished.emplace(part_path());  // and the first checkpoint has its rows
  else
    checkpoint();
}

ResultFile::~ResultFile() {
  // What an unfinished run left is not ours to remove before its rows are.
  if (!m_contents || m_contents->options.discard || resumes()) return;
  const bool failed = std::uncaught_exceptions() > m_contents->exceptions;
  const bool has_rows =
      std::ranges::any_of(m_contents->tables, [](const auto& table) { return table.second.rows() > 0; });
  std::error_code ignored;  // the next run replaces the file
  if (failed && !has_rows) std::filesystem::remove(part_path(), ignored);
}

ResultFile::ResultFile(ResultFile&& other) noexcept = default;
ResultFile& ResultFile::operator=(ResultFile&& other) noexcept = default;

ResultGroup& ResultFile::root() { return m_contents->groups[root_path]; }

ResultGroup& ResultFile::group(const std::string& path) {
  if (m_contents->tables.contains(path)) throw Error("kformer::ResultFile::group: '" + path + "' is a table");
  return m_contents->groups[path];
}

Table& ResultFile::table(const std::string& path, const std::string& row_dimension,
                         const std::string& long_name) {
  if (m_contents->groups.contains(path) || m_contents->tables.contains(path)) {
    throw Error("kformer::ResultFile::table: '" + path + "' exists already");
  }
  return m_contents->tables.try_emplace(path, path, row_dimension, long_name).first->second;
}

bool ResultFile::resumes() const { return m_contents->unfinished.has_value(); }

std::string ResultFile::unfinished_text(const std::string& group, const std::string& name) const {
  return resumes() ? m_contents->unfinished->text(group, name) : std::string();
}

void ResultFile::restore() {
  if (!resumes()) return;
  for (auto& [path, table] : m_contents->tables) m_contents->unfinished->append_rows(path, table);
  checkpoint();
  m_contents->unfinished.reset();
}

void ResultFile::checkpoint() {
  if (m_contents->options.discard) return;
  const auto image = Impl::serialize(*m_contents, part_path().string(), m_contents->options.compression);
  Impl::replace_file(part_path(), std::array{std::span<const std::byte>(image)});
}

void ResultFile::finish() {
  if (m_contents->options.discard) return;
  root().attribute("complete", true);
  checkpoint();
  if (!m_contents->options.overwrite && Impl::existing_file(path()) != ExistingFile::none)
    refuse(path(),
           "another program wrote it during this run, whose results are in '" + part_path().string() + "'");
  std::error_code error;
  std::filesystem::rename(part_path(), m_contents->path, error);
  if (error) {
    throw FileError("cannot rename '" + part_path().string() + "' to '" + m_contents->path.string() +
                    "': " + error.message());
  }
}

std::string ResultFile::schema() const { return Impl::schema_text(*m_contents); }

const std::filesystem::path& ResultFile::path() const { return m_contents->path; }

std::filesystem::path ResultFile::part_path() const { return m_contents->path.string() + ".part"; }

std::string hdf5_version() { return hdf5::library_version(); }

}  // namespace kformer
