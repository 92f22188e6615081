// SPDX-License-Identifier: MIT
#include "core/overlap.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace kformer::Impl {

namespace {

/// Memory of a tensor: dense blocks, repeated along dimensions whose strides grow.
struct Blocks {
  struct Dimension {
    std::int64_t stride, extent;  ///< stride in bytes
    bool operator<(const Dimension& other) const { return stride < other.stride; }
  };
  std::array<Dimension, TensorRef::max_rank> dimensions{};
  int count = 0;            ///< of dimensions
  std::int64_t begin = 0;   ///< address
  std::int64_t length = 0;  ///< bytes from the first to behind the last

  std::int64_t end() const { return begin + length; }
  std::int64_t largest_stride() const { return count == 0 ? 0 : dimensions[count - 1].stride; }
  bool meets(const Blocks& other) const { return begin < other.end() && other.begin < end(); }

  /// Slice `i` along the dimension of largest stride.
  Blocks slice(std::int64_t i) const {
    Blocks part = *this;
    const auto [stride, extent] = dimensions[--part.count];
    part.begin += i * stride;
    part.length -= (extent - 1) * stride;
    return part;
  }
};

Blocks blocks_of(const TensorRef& t) {
  Blocks blocks;
  const auto bytes = static_cast<std::int64_t>(size_of(t.dtype));
  for (int r = 0; r < t.rank; ++r)
    if (t.extent[r] > 1 && t.stride[r] != 0)
      blocks.dimensions[blocks.count++] = {t.stride[r] * bytes, t.extent[r]};
  const auto first = blocks.dimensions.begin();
  std::sort(first, first + blocks.count);
  blocks.begin = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(t.data));
  blocks.length = bytes;
  int dense = 0;  // contiguous dimensions
  for (int r = 0; r < blocks.count; ++r) {
    const auto [stride, extent] = blocks.dimensions[r];
    if (r == dense && stride == blocks.length) ++dense;
    blocks.length += (extent - 1) * stride;
  }
  std::move(first + dense, first + blocks.count, first);
  blocks.count -= dense;
  return blocks;
}

/// Of the slices that can meet, the first two and the last two are looked at: where strides are equal the
/// others lie like these, and where they are not nothing is claimed.
bool overlap(const Blocks& a, const Blocks& b) {
  if (!a.meets(b)) return false;
  if (a.count == 0 && b.count == 0) return true;
  if (a.largest_stride() < b.largest_stride()) return overlap(b, a);
  const auto [stride, extent] = a.dimensions[a.count - 1];
  const Blocks slice = a.slice(0);
  const std::int64_t first = std::max<std::int64_t>(0, (b.begin - slice.end()) / stride);
  const std::int64_t last = std::min<std::int64_t>(extent - 1, (b.end() - a.begin) / stride);
  for (std::int64_t i = first; i <= last; i = i == first + 1 ? std::max(i + 1, last - 1) : i + 1)
    if (overlap(a.slice(i), b)) return true;
  return false;
}

bool has_memory(const TensorRef& t) { return t.present() && t.data != nullptr && t.size() > 0; }

}  // namespace

bool overlap(const TensorRef& a, const TensorRef& b) {
  return has_memory(a) && has_memory(b) && overlap(blocks_of(a), blocks_of(b));
}

bool overlaps_itself(const TensorRef& t) {
  if (!has_memory(t)) return false;
  std::array<Blocks::Dimension, TensorRef::max_rank> dimensions{};
  int count = 0;
  for (int r = 0; r < t.rank; ++r)
    if (t.extent[r] > 1) dimensions[count++] = {t.stride[r], t.extent[r]};
  std::sort(dimensions.begin(), dimensions.begin() + count);
  std::int64_t span = 1;  // elements
  for (int r = 0; r < count; ++r) {
    const auto [stride, extent] = dimensions[r];
    if (stride < span) return true;
    span += (extent - 1) * stride;
  }
  return false;
}

bool same_elements(const TensorRef& a, const TensorRef& b) {
  if (a.data != b.data || size_of(a.dtype) != size_of(b.dtype) || !a.same_extents(b)) return false;
  for (int r = 0; r < a.rank; ++r)
    if (a.extent[r] > 1 && a.stride[r] != b.stride[r]) return false;
  return true;
}

}  // namespace kformer::Impl
