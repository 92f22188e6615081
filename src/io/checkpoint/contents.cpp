// SPDX-License-Identifier: MIT
#include "io/checkpoint/contents.hpp"

#include <cstring>

#include "io/key_names.hpp"

namespace kformer::Impl {
namespace {

/// The rows of heads whose features are paired as (0,1), (2,3), …, in the order that pairs feature i with
/// feature i + head_dim / 2.
std::vector<std::byte> half_split_rows(std::span<const std::byte> bytes, std::size_t rows, std::size_t heads) {
  const std::size_t row_bytes = bytes.size() / rows;
  const std::size_t head_dim = rows / heads;
  std::vector<std::byte> reordered(bytes.size());
  std::byte* to = reordered.data();
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::size_t row = 0; row < head_dim; ++row, to += row_bytes) {
      const std::size_t half = head_dim / 2;
      const std::size_t from = head * head_dim + (row < half ? 2 * row : 2 * (row - half) + 1);
      std::memcpy(to, bytes.data() + from * row_bytes, row_bytes);
    }
  }
  return reordered;
}

}  // namespace

bool CheckpointContents::add(const std::string& name, CheckpointTensor tensor, std::size_t interleaved_heads) {
  const auto [place, fresh] = m_slots.try_emplace(name);
  if (!fresh) return false;
  if (interleaved_heads > 0)
    place->second.arranged = [bytes = tensor.bytes, rows = tensor.shape.front(), interleaved_heads] {
      return half_split_rows(bytes, rows, interleaved_heads);
    };
  place->second.tensor = std::move(tensor);
  return true;
}

void CheckpointContents::replace(const std::string& name, CheckpointTensor tensor,
                                 std::function<std::vector<std::byte>()> arranged) {
  Slot& slot = m_slots.at(name);
  slot.tensor = std::move(tensor);
  slot.arranged = std::move(arranged);
}

std::vector<std::string> CheckpointContents::names() const { return key_names(m_slots); }

const CheckpointTensor* CheckpointContents::find(std::string_view name) const {
  const auto place = m_slots.find(name);
  if (place == m_slots.end()) return nullptr;
  Slot& slot = place->second;
  if (slot.arranged) {
    std::call_once(slot.made, [&] {
      slot.bytes = slot.arranged();
      slot.tensor.bytes = slot.bytes;
    });
  }
  return &slot.tensor;
}

const CheckpointTensor* CheckpointContents::find_layout(std::string_view name) const {
  const auto place = m_slots.find(name);
  return place == m_slots.end() ? nullptr : &place->second.tensor;
}

}  // namespace kformer::Impl
