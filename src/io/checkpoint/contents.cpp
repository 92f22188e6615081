// SPDX-License-Identifier: MIT
#include "io/checkpoint/contents.hpp"

#include "io/gguf/layout.hpp"
#include "io/key_names.hpp"
#include "io/mapped_file.hpp"
#include "io/row_order.hpp"

namespace kformer::Impl {
bool CheckpointContents::add(const std::string& name, CheckpointTensor tensor, std::size_t interleaved_heads) {
  const auto [place, fresh] = m_slots.try_emplace(name);
  if (!fresh) return false;
  if (interleaved_heads > 0)
    place->second.arranged = [bytes = tensor.bytes, rows = tensor.shape.front(), interleaved_heads] {
      auto arranged = half_split_rows(bytes, rows, interleaved_heads);
      release_pages(bytes);
      return arranged;
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

std::optional<TensorLayout> CheckpointContents::layout(std::string_view name) const {
  const auto place = m_slots.find(name);
  if (place == m_slots.end()) return std::nullopt;
  const auto& [type, shape, bytes] = place->second.tensor;
  // Others may be arranging the bytes now.
  return TensorLayout{type, shape, place->second.arranged ? tensor_bytes(type, shape).value() : bytes.size()};
}

void CheckpointContents::release(std::string_view name) const {
  const auto place = m_slots.find(name);
  if (place != m_slots.end() && !place->second.arranged) release_pages(place->second.tensor.bytes);
}

}  // namespace kformer::Impl
