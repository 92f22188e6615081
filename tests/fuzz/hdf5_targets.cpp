// SPDX-License-Identifier: MIT
#include <array>

#include "fuzz/dataset.hpp"
#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "io/results/existing_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Testing {

namespace {

void read_hdf5_tokens(std::string_view bytes) {
  static const InputFolder folder("tokens.h5");
  read_dataset(DataFormat::tokens, folder.put(bytes));
}

// What lies where a result file is to be written.
void judge_existing_file(std::string_view bytes) {
  static const InputFolder folder("results.h5");
  if (Impl::existing_file(folder.put(bytes)) == Impl::ExistingFile::foreign) throw FileError("it is not ours");
}

}  // namespace

std::span<const FuzzTarget> hdf5_targets() {
  static constexpr std::array<FuzzTarget, 2> targets{
      {{"hdf5_tokens", read_hdf5_tokens}, {"existing_file", judge_existing_file}}};
  return targets;
}

}  // namespace kformer::Testing
