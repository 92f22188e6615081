// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kformer/core/named_array.hpp"
#include "kformer/io/safetensors.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/memory/transfer.hpp"

/// \file
/// The state of a training run on disk: written while training goes on, found again after a crash.
///
/// A checkpoint is a safetensors file `step-00000040.safetensors` with the arrays of the run, and the caller's columns
/// as `columns/NAME`. Its metadata are "format", "step", "metadata", a text of the caller's, and "checksum", XXH64 of
/// the rest of the metadata and of names, types, extents and bytes of all arrays.
///
/// Several ranks write a checkpoint together, each its parts of the arrays: rank 0 that file, whose metadata then have
/// "ranks", and rank 2 of 4 the file `step-00000040.rank-2-of-4.safetensors`. A part that begins at element 8192 of the
/// array NAME is called `NAME#8192`; one that begins at element 8192 of columns 64 to 127 of 256, `NAME#8192:64-128/256`.
/// Any grid of ranks can continue from it.

namespace kformer {

/// Options of `CheckpointWriter`.
struct CheckpointOptions {
  std::filesystem::path folder;  ///< where the files go; it is made. One run at a time writes there.
  std::int64_t keep = 2;         ///< how many of the newest stay; 0: all
  bool background =
      true;       ///< whether a thread writes a copy while training goes on. Otherwise `snapshot` writes,
                  ///< and arrays that the host can read need no copy.
  int rank = 0;   ///< of several that write checkpoints together, and make the same calls
  int ranks = 1;  ///< how many there are
  std::function<void()>
      agree{};  ///< with several: returns when all ranks have called it. Called when this rank's
                ///< file is complete; the oldest files are deleted after it
};

/// A column that the caller adds to a checkpoint, for data that grow with the run. The text of a checkpoint
/// must stay small: it is part of the header, which the format limits to 100 MB.
struct CheckpointColumn {
  std::string dtype;             ///< "F64", "I64" or "U8"
  std::vector<std::byte> bytes;  ///< its elements
};

/// Columns by name.
using CheckpointColumns = std::map<std::string, CheckpointColumn>;

namespace Impl {

/// The files of a run.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(const CheckpointOptions& options) : m_options(options) {}
  CheckpointFolder(const CheckpointFolder&) = delete;  // the thread knows its address
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;
  /// Makes the folder, and deletes what a killed run left half-written.
  void create() const;
  /// Waits for the last file, of all ranks, and throws what went wrong with that of this rank.
  void wait();
  /// Writes arrays in memory of the host, and deletes the oldest files.
  void write(std::int64_t step, const std::string& metadata, CheckpointColumns columns,
             const std::vector<NamedArray>& arrays);

 private:
  void replace(std::int64_t step, const std::string& metadata, const CheckpointColumns& columns,
               const std::vector<NamedArray>& arrays) const;
  void complete();
  void rotate(std::int64_t step) const;

  CheckpointOptions m_options;
  std::future<void> m_pending;
  std::optional<std::int64_t> m_written;  // the step of a file of this rank, if others may still write theirs
};

/// Bytes of a dense array.
inline std::size_t bytes_of(const TensorRef& array) {
  return static_cast<std::size_t>(array.size()) * size_of(array.dtype);
}

}  // namespace Impl

/// Writes checkpoints of a run:
///
///     CheckpointWriter<Exec> writer({.folder = "checkpoints"}, trainer.arrays(), ledger);
///     …
///     writer.snapshot(exec, trainer.steps_done(), metadata);
///     …
///     writer.finish();
///
/// A file gets its final name only when it is complete: it is written under another one, synchronised with the disk
/// and renamed. Only then are the oldest deleted. If a write fails, the earlier files stay intact.
template <class Exec>
class CheckpointWriter {
 public:
  /// Books and allocates a copy of the arrays in memory of the host, if `options` ask for it or the host cannot read
  /// them where they are. Makes the folder, unless the ledger only counts.
  /// \param options where the files go
  /// \param arrays  what they contain; they must outlive the writer
  /// \param ledger  the memory is of the class io
  /// \throws OutOfMemory with the ledger
  /// \throws FileError if the folder cannot be made
  CheckpointWriter(const CheckpointOptions& options, std::vector<NamedArray> arrays, Ledger& ledger);

  /// Copies the arrays as they are after the work that was launched on `exec`, and writes them to the file of `step`.
  /// In the background it first waits for the previous file, and returns when the copy is complete.
  /// \param exec     the instance
  /// \param step     the steps that were done
  /// \param metadata a text in UTF-8, such as JSON
  /// \param columns  what else is to be in the file
  /// \returns the seconds that the caller waited
  /// \throws FileError if this file, or in the background the last one, could not be written
  double snapshot(const Exec& exec, std::int64_t step, const std::string& metadata,
                  CheckpointColumns columns = {});

  /// Waits for the last file, of all ranks. Otherwise the destructor waits for that of this rank, and reports no error.
  /// \throws FileError if the file could not be written
  void finish() { m_files.wait(); }

 private:
  using memory_space = typename Exec::memory_space;

  std::vector<NamedArray> m_arrays, m_copies;
  std::shared_ptr<Ledger> m_ledger;  // counts transfers
  MemoryBlock<HostStagingSpace<memory_space>> m_block;
  Impl::CheckpointFolder m_files;  // destroyed first: it reads the block
};

/// A checkpoint that was read completely and found undamaged.
class TrainingCheckpoint {
 public:
  /// Reads and checks a file.
  /// \throws FileError if it is not a training checkpoint, or damaged
  static TrainingCheckpoint open(const std::filesystem::path& path);

  /// The file.
  const std::filesystem::path& path() const { return m_path; }
  /// The steps that were done.
  std::int64_t step() const { return m_step; }
  /// The text that was given to `snapshot`.
  const std::string& metadata() const { return m_files.front().metadata().at("metadata"); }
  /// A copy of the columns that were given to `snapshot`.
  CheckpointColumns columns() const;

  /// Copies the file's contents to the arrays. Returns when they have arrived.
  /// \param exec   the instance
  /// \param arrays all that are in the file, in any order; of each, all or a part
  /// \param ledger counts transfers
  /// \param some   whether there may be others in the file, of layers that other ranks have (`TrainerOptions::pipeline`)
  /// \throws FileError if names, types or extents are not those of the file; then nothing is written
  template <class Exec>
  void restore(const Exec& exec, std::span<const NamedArray> arrays, Ledger& ledger, bool some = false) const {
    check_against(arrays, some);
    for (const NamedArray& a : arrays)
      for (const Pieces& from : pieces_of(a)) {
        for (const Piece& piece : from.pieces)
          transfer<typename Exec::memory_space, Kokkos::HostSpace>(
              exec, ledger, static_cast<std::byte*>(a.array.data) + piece.offset, piece.bytes.data(),
              piece.bytes.size());
        from.file->release(from.entry);
      }
    exec.fence("kformer::TrainingCheckpoint::restore");
  }

 private:
  // An array in a file, or a part of it.
  struct Stored {
    std::int64_t begin, size;  // elements
    ColumnRange columns;
    std::size_t file;   // of m_files
    std::string entry;  // its name there
    bool whole;
  };
  // What an array takes from an array of a file.
  struct Piece {
    std::span<const std::byte> bytes;
    std::size_t offset;  // bytes, in the array
  };
  struct Pieces {
    const SafetensorsFile* file;
    std::string entry;
    std::vector<Piece> pieces;
  };

  explicit TrainingCheckpoint(std::filesystem::path path);
  void add_file(const std::filesystem::path& path);
  void check_whole();
  void check_against(std::span<const NamedArray> arrays, bool some) const;
  std::vector<Pieces> pieces_of(const NamedArray& array) const;

  std::filesystem::path m_path;
  std::vector<SafetensorsFile> m_files;                 // of rank 0, 1, …
  std::map<std::string, std::vector<Stored>> m_stored;  // by name
  std::map<std::string, std::int64_t> m_elements;       // of the whole arrays
  std::int64_t m_step = 0;
  int m_ranks = 1;
};

/// The files in a folder that have the name and the header of a checkpoint, by step. What follows the header
/// may be damaged.
/// \param folder where they are; it may be absent
std::vector<std::filesystem::path> training_checkpoints_in(const std::filesystem::path& folder);

/// Deletes a checkpoint: the files of other ranks, and then this one. What is left if that is interrupted is incomplete,
/// and can be deleted in the same way.
/// \param path as `training_checkpoints_in` names it
/// \throws FileError if a file cannot be deleted
void remove_training_checkpoint(const std::filesystem::path& path);

/// The checkpoint of the latest step that can be read, or nothing.
/// \param folder  where they are; it may be absent
/// \param skipped called with the reason for each file of a later step that cannot be used
std::optional<TrainingCheckpoint> newest_good_checkpoint(
    const std::filesystem::path& folder, const std::function<void(const std::string&)>& skipped = {});

template <class Exec>
CheckpointWriter<Exec>::CheckpointWriter(const CheckpointOptions& options, std::vector<NamedArray> arrays,
                                         Ledger& ledger)
    : m_arrays(std::move(arrays)), m_copies(m_arrays), m_ledger(ledger.shared_from_this()), m_files(options) {
  if (options.background || !Impl::host_reaches<memory_space>) {
    MemoryLayout layout;
    std::vector<std::size_t> offsets;
    for (const NamedArray& a : m_arrays)
      offsets.push_back(layout.reserve<std::byte>(static_cast<std::int64_t>(Impl::bytes_of(a.array))));
    m_block = ledger.allocate<HostStagingSpace<memory_space>>(MemoryClass::io, "CheckpointWriter::snapshot",
                                                              layout.bytes());
    for (std::size_t i = 0; i < m_copies.size(); ++i)
      m_copies[i].array.data = m_block.template at<std::byte>(offsets[i]);
  }
  if (!ledger.counts_only()) m_files.create();
}

template <class Exec>
double CheckpointWriter<Exec>::snapshot(const Exec& exec, std::int64_t step, const std::string& metadata,
                                        CheckpointColumns columns) {
  const auto begin = std::chrono::steady_clock::now();
  m_files.wait();
  if (m_block.data())
    for (std::size_t i = 0; i < m_arrays.size(); ++i)
      transfer<HostStagingSpace<memory_space>, memory_space>(
          exec, *m_ledger, m_copies[i].array.data, m_arrays[i].array.data, Impl::bytes_of(m_arrays[i].array));
  exec.fence("kformer::CheckpointWriter::snapshot");
  m_files.write(step, metadata, std::move(columns), m_copies);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace kformer
