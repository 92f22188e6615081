// SPDX-License-Identifier: MIT
#include <array>

#include "fuzz/dataset.hpp"
#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "io/cases_table.hpp"
#include "io/results/existing_file.hpp"
#include "io/results/unfinished_file.hpp"
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

// What a resumed run takes from the run before.
void read_unfinished(std::string_view bytes) {
  static const InputFolder folder("results.h5.part");
  const auto& file = folder.put(bytes);
  if (Impl::existing_file(file) != Impl::ExistingFile::with_cases) throw FileError("it has no cases");
  const Impl::UnfinishedFile unfinished(file);
  for (const char* name : {"kind", "history", "count"}) unfinished.text("", name);
  unfinished.text("provenance", "deck_resolved");
  Table cases = cases_table();
  unfinished.append_rows("cases", cases);
}

}  // namespace

std::span<const FuzzTarget> hdf5_targets() {
  static constexpr std::array<FuzzTarget, 3> targets{{{"hdf5_tokens", read_hdf5_tokens},
                                                      {"existing_file", judge_existing_file},
                                                      {"unfinished_file", read_unfinished}}};
  return targets;
}

}  // namespace kformer::Testing
