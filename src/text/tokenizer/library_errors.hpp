// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <filesystem>
#include <new>
#include <string>

#include "kformer/core/error.hpp"
#include "text/base/file.hpp"

namespace kformer::Impl::tokenizers {

/// What `open` returns. What libraries throw at a file that is no tokenizer becomes a FileError that names it; a lack of memory
/// is none.
template <class Open>
auto opened(const std::filesystem::path& path, const Open& open) {
  try {
    return open();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::filesystem::filesystem_error& error) {
    throw FileError("cannot read '" + path.string() + "': " + error.code().message());
  } catch (const std::exception& error) {
    refuse(path.string(), error.what());
  }
}

}  // namespace kformer::Impl::tokenizers
