// SPDX-License-Identifier: MIT
#include "io/hdf5_size.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kformer/io/hdf5.hpp"

namespace kformer::Impl {
namespace {

using hdf5::check;

constexpr const char* what = "size of a dataset";
// Deflate makes at most 1032 bytes of one.
constexpr std::uint64_t most_per_byte = 1032;
// Values of a chunk that any file may have.
constexpr std::uint64_t small_chunk = std::uint64_t{1} << 17;

/// What extents make together; the most where it is more.
std::uint64_t product(const std::vector<hsize_t>& extents) {
  std::uint64_t values = 1;
  for (const hsize_t extent : extents)
    if (__builtin_mul_overflow(values, extent, &values)) return UINT64_MAX;
  return values;
}

std::uint64_t values_in(const hdf5::Dataspace& space) {
  std::vector<hsize_t> extents(H5S_MAX_RANK);
  extents.resize(static_cast<std::size_t>(
      check(H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr), "read", what)));
  return product(extents);
}

std::uint64_t values_of_chunk(const hdf5::PropertyList& made) {
  std::vector<hsize_t> extents(H5S_MAX_RANK);
  extents.resize(static_cast<std::size_t>(
      check(H5Pget_chunk(made.get(), static_cast<int>(extents.size()), extents.data()), "read", what)));
  return product(extents);
}

}  // namespace

std::optional<std::string> false_size_of(hid_t dataset, std::uint64_t file_bytes) {
  const hdf5::Dataspace space(check(H5Dget_space(dataset), "read", what));
  const hdf5::Datatype type(check(H5Dget_type(dataset), "read", what));
  const hdf5::PropertyList made(check(H5Dget_create_plist(dataset), "read", what));
  const H5D_layout_t layout = H5Pget_layout(made.get());
  if (layout == H5D_VIRTUAL || H5Pget_external_count(made.get()) != 0) return "is stored in another file";
  const std::uint64_t count = values_in(space);
  const std::uint64_t stored = std::min<std::uint64_t>(H5Dget_storage_size(dataset), file_bytes);
  const std::uint64_t bytes = std::max<std::uint64_t>(1, H5Tget_size(type.get()));
  if (count / most_per_byte > stored || (layout == H5D_COMPACT && count > stored / bytes))
    return fmt::format("has {} values in {} bytes", count, stored);
  if (layout != H5D_CHUNKED) return {};
  const std::uint64_t chunk = values_of_chunk(made);
  if (chunk > small_chunk && chunk / most_per_byte > file_bytes / bytes)
    return fmt::format("has chunks of {} values in a file of {} bytes", chunk, file_bytes);
  return {};
}

}  // namespace kformer::Impl
