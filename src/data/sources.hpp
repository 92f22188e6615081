// SPDX-License-Identifier: MIT
#pragma once

#include "data/token_store.hpp"
#include "kformer/data/token_dataset.hpp"

namespace kformer::Impl::data {

/// Reads the documents of a data set.
/// \param options   what to read
/// \param tokenizer may be null for token files
/// \param report    receives cached_files, and notes on files
/// \throws FileError, NotSupported, Error as TokenDataset::open
TokenStore read_documents(const DataOptions& options, const Tokenizer* tokenizer, DataReport& report);

}  // namespace kformer::Impl::data
