// SPDX-License-Identifier: MIT
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <optional>
#include <string>

namespace kformer::Impl {

/// What is wrong with the sizes of a dataset in a file of others, such as "has 9 values in 0 bytes"; nothing if they may be
/// true. A few bytes can declare any number of values and lay them into another file, and HDF5 believes them: it copies
/// compact values without a look at how many there are, and reads whole chunks into memory, however few of their values
/// are wanted.
/// \param file_bytes of the whole file
/// \throws FileError if HDF5 cannot tell
std::optional<std::string> false_size_of(hid_t dataset, std::uint64_t file_bytes);

}  // namespace kformer::Impl
