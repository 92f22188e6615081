// SPDX-License-Identifier: MIT
#include "data/token_store.hpp"

#include <algorithm>
#include <utility>

namespace kformer::Impl::data {

void TokenStore::add(TokenShard shard) {
  const std::int64_t begin = size();
  m_begins.push_back(begin);
  for (std::size_t i = 1; i < shard.offsets.size(); ++i) m_offsets.push_back(begin + shard.offsets[i]);
  m_shards.push_back(std::move(shard));
}

void TokenStore::learn_all() {
  for (TokenShard& shard : m_shards) shard.learnt = {};
}

template <class F>
void TokenStore::for_parts(std::int64_t first, std::int64_t count, F f) const {
  auto at = static_cast<std::size_t>(std::ranges::upper_bound(m_begins, first) - m_begins.begin()) - 1;
  for (; count > 0; ++at) {
    const TokenShard& shard = m_shards[at];
    const std::int64_t within = first - m_begins[at], part = std::min(count, shard.size() - within);
    f(shard, within, part);
    first += part;
    count -= part;
  }
}

void TokenStore::ids(std::int64_t first, std::span<std::int32_t> out) const {
  for_parts(first, std::ssize(out), [&](const TokenShard& shard, std::int64_t within, std::int64_t count) {
    shard.copy(within, out.first(static_cast<std::size_t>(count)));
    out = out.subspan(static_cast<std::size_t>(count));
  });
}

void TokenStore::targets(std::int64_t first, std::span<std::int32_t> out) const {
  for_parts(first, std::ssize(out), [&](const TokenShard& shard, std::int64_t within, std::int64_t count) {
    const auto part = out.first(static_cast<std::size_t>(count));
    shard.copy(within, part);
    for (std::size_t i = 0; i < part.size() && !shard.learnt.empty(); ++i)
      if (shard.learnt[static_cast<std::size_t>(within) + i] == 0) part[i] = no_target;
    out = out.subspan(part.size());
  });
}

std::int64_t TokenStore::learnt(std::int64_t first, std::int64_t last) const {
  std::int64_t total = 0;
  for_parts(first, last - first, [&](const TokenShard& shard, std::int64_t within, std::int64_t count) {
    total += shard.learnt.empty() ? count
                                  : std::ranges::count(shard.learnt.subspan(static_cast<std::size_t>(within),
                                                                            static_cast<std::size_t>(count)),
                                                       std::uint8_t{1});
  });
  return total;
}

std::int64_t TokenStore::malformed() const {
  std::int64_t total = 0;
  for (const TokenShard& shard : m_shards) total += shard.malformed;
  return total;
}

ContentHash TokenStore::content() const {
  std::string all;
  for (const TokenShard& shard : m_shards) all += shard.content.text();
  return hash_of(all);
}

}  // namespace kformer::Impl::data
