// SPDX-License-Identifier: MIT
#include "quantize/output_folder.hpp"

#include "io/checkpoint/install.hpp"

namespace kformer::drivers {

namespace fs = std::filesystem;

OutputFolder::OutputFolder(const fs::path& path, const fs::path& input, const Checkpoint& source,
                           bool overwrite)
    : m_folder("output", path, "kformer-quantize") {
  std::error_code ignored;  // a folder that does not exist is none of them
  for (const fs::path& read : {input, source.folder().empty() ? fs::path(".") : source.folder()})
    if (fs::equivalent(m_folder.path(), read, ignored))
      m_folder.refuse("is the folder of the input; name another folder");
  m_folder.require_usable(overwrite, "--overwrite replaces a checkpoint there");
}

void OutputFolder::make() {
  m_folder.claim();
  m_folder.make();
}

void OutputFolder::install() {
  m_folder.with_errors([&] { Impl::install_checkpoint(staging(), m_folder.path()); });
}

}  // namespace kformer::drivers
