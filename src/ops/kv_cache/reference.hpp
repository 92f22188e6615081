// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kformer/ops/kv_cache_eviction.hpp"
#include "ops/common/host_tensor.hpp"

/// \file
/// Caches in textbook order: the oracle. Indices are given as `Real`, which holds each of them exactly. What is
/// copied is not rounded; codes are those of arithmetic in `Real`.

namespace kformer::Impl::reference {

template <class Real>
bool is_row(std::int64_t row, const HostTensor<Real>& x) {
  return row >= 0 && row < x.extent(0);
}

/// `to(row) = from(other row)`.
template <class Real>
void copy_token(const HostTensor<Real>& from, std::int64_t from_row, HostTensor<Real>& to,
                std::int64_t to_row) {
  for (std::int64_t h = 0; h < to.extent(1); ++h)
    for (std::int64_t d = 0; d < to.extent(2); ++d) to(to_row, h, d) = from(from_row, h, d);
}

/// The cache with the rows of `x` in their slots.
template <class Real>
HostTensor<Real> kv_append(const HostTensor<Real>& x, const HostTensor<Real>& slots, HostTensor<Real> cache) {
  for (std::int64_t r = 0; r < x.extent(0); ++r)
    if (const auto slot = static_cast<std::int64_t>(slots(r)); is_row(slot, cache))
      copy_token(x, r, cache, slot);
  return cache;
}

/// Tokens out of pages, NaN if there is no such page.
template <class Real>
HostTensor<Real> kv_gather(const HostTensor<Real>& cache, const HostTensor<Real>& pages,
                           std::int64_t page_tokens, std::int64_t tokens) {
  HostTensor<Real> x({tokens, cache.extent(1), cache.extent(2)}, std::numeric_limits<Real>::quiet_NaN());
  for (std::int64_t t = 0; t < tokens; ++t)
    if (const auto page = static_cast<std::int64_t>(pages(t / page_tokens));
        page >= 0 && is_row(page * page_tokens + t % page_tokens, cache))
      copy_token(cache, page * page_tokens + t % page_tokens, x, t);
  return x;
}

/// The cache with slot n of each array and head replaced by slot kept(n).
template <class Real>
HostTensor<Real> kv_compact(HostTensor<Real> cache, const HostTensor<Real>& kept) {
  for (std::int64_t a = 0; a < cache.extent(0); ++a)
    for (std::int64_t n = 0; n < kept.extent(2); ++n)
      for (std::int64_t h = 0; h < cache.extent(2); ++h) {
        const auto slot =
            static_cast<std::int64_t>(kept(kept.extent(0) == 1 ? 0 : a, kept.extent(1) == 1 ? 0 : h, n));
        if (slot < 0 || slot >= cache.extent(1)) continue;
        for (std::int64_t d = 0; d < cache.extent(3); ++d) cache(a, n, h, d) = cache(a, slot, h, d);
      }
  return cache;
}

template <class Real>
struct Codes {
  HostTensor<Real> codes, scale;
};

/// The codes of the rows of `x` in their slots: scale = max|x| / 127, code = 128 + round(x / scale).
template <class Real>
Codes<Real> kv_append_int8(const HostTensor<Real>& x, const HostTensor<Real>& slots, Codes<Real> cache) {
  for (std::int64_t r = 0; r < x.extent(0); ++r) {
    const auto slot = static_cast<std::int64_t>(slots(r));
    if (!is_row(slot, cache.codes)) continue;
    for (std::int64_t h = 0; h < x.extent(1); ++h) {
      Real most = 0;
      bool finite = true;
      for (std::int64_t d = 0; d < x.extent(2); ++d) {
        finite = finite && isfinite(x(r, h, d));
        most = std::max(most, std::abs(x(r, h, d)));
      }
      const Real scale = finite ? most / 127 : std::numeric_limits<Real>::quiet_NaN();
      cache.scale(slot, h) = scale;
      for (std::int64_t d = 0; d < x.extent(2); ++d)
        cache.codes(slot, h, d) =
            128 + (scale > 0 ? std::clamp(std::round(x(r, h, d) / scale), Real(-127), Real(127)) : Real(0));
    }
  }
  return cache;
}

/// scale · (code − 128).
template <class Real>
HostTensor<Real> kv_gather_int8(const Codes<Real>& cache) {
  const HostTensor<Real>& codes = cache.codes;
  HostTensor<Real> x({codes.extent(0), codes.extent(1), codes.extent(2)});
  for (std::int64_t t = 0; t < x.extent(0); ++t)
    for (std::int64_t h = 0; h < x.extent(1); ++h)
      for (std::int64_t d = 0; d < x.extent(2); ++d) x(t, h, d) = (codes(t, h, d) - 128) * cache.scale(t, h);
  return x;
}

/// mass + Σ exp(s − lse) over the queries that see a key, where the last q_len keys start at 0.
template <class Real, class Store>
HostTensor<Real> kv_attention_mass(const HostTensor<Real>& q, const HostTensor<Real>& k,
                                   const HostTensor<Real>& lse, const HostTensor<Real>& positions,
                                   HostTensor<Real> mass, const AttentionOptions& options) {
  const std::int64_t old = k.extent(0) - q.extent(0), kv_heads = k.extent(1), group = q.extent(1) / kv_heads;
  const auto scale = static_cast<Real>(attention_scale(options, q.extent(2)));
  const auto cap = static_cast<Real>(options.softcap);
  for (std::int64_t g = 0; g < kv_heads; ++g)
    for (std::int64_t j = 0; j < k.extent(0); ++j) {
      Real sum = j < old ? mass(g, j) : Real(0);
      for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
        for (std::int64_t i = std::max<std::int64_t>(0, j - old); i < q.extent(0); ++i) {
          const auto distance = static_cast<std::int64_t>(positions(g, old + i) - positions(g, j));
          if (options.window > 0 && distance >= options.window) continue;
          if (lse(h, i) == -std::numeric_limits<Real>::infinity()) continue;
          Real dot = 0;
          for (std::int64_t d = 0; d < k.extent(2); ++d) dot += q(i, h, d) * k(j, g, d);
          Real score = stored<Store>(scale * dot);
          if (cap > 0) score = stored<Store>(cap * tanh(score / cap));
          sum += stored<Store>(exp(score - lse(h, i)));
        }
      mass(g, j) = sum;
    }
  return mass;
}

/// The last `recent` tokens and those before with the largest masses, `count` in all, in order.
template <class Real>
HostTensor<Real> kv_heavy_hitters(const HostTensor<Real>& mass, std::int64_t recent, std::int64_t count) {
  HostTensor<Real> kept({mass.extent(0), mass.extent(1), count});
  const std::int64_t tokens = mass.extent(2), older = tokens - recent;
  for (std::int64_t a = 0; a < mass.extent(0); ++a)
    for (std::int64_t h = 0; h < mass.extent(1); ++h) {
      std::vector<std::int64_t> order(static_cast<std::size_t>(older));
      std::iota(order.begin(), order.end(), 0);
      const auto rank = [&](std::int64_t s) {
        return isnan(mass(a, h, s)) ? std::numeric_limits<Real>::infinity() : mass(a, h, s);
      };
      std::stable_sort(order.begin(), order.end(), [&](auto s, auto t) {
        return rank(s) > rank(t) || (isnan(mass(a, h, s)) && !isnan(mass(a, h, t)));
      });
      order.resize(static_cast<std::size_t>(count - recent));
      std::sort(order.begin(), order.end());
      for (std::int64_t s = older; s < tokens; ++s) order.push_back(s);
      for (std::int64_t n = 0; n < count; ++n) kept(a, h, n) = static_cast<Real>(order[n]);
    }
  return kept;
}

/// 0 where a query sees a key, else −∞.
template <class Real>
HostTensor<Real> kv_mask(const HostTensor<Real>& positions, std::int64_t heads, std::int64_t q_len,
                         const KvMaskOptions& options) {
  const std::int64_t kv_len = positions.extent(1);
  HostTensor<Real> bias({heads, q_len, kv_len});
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < q_len; ++i)
      for (std::int64_t j = 0; j < kv_len; ++j) {
        const std::int64_t row = h / (heads / positions.extent(0));
        const auto position = static_cast<std::int64_t>(positions(row, j));
        const auto distance = static_cast<std::int64_t>(positions(row, kv_len - q_len + i)) - position;
        bool seen = options.window == 0 || distance < options.window || position < options.sinks;
        seen = seen && (options.model_window == 0 || distance < options.model_window);
        if (!seen) bias(h, i, j) = -std::numeric_limits<Real>::infinity();
      }
  return bias;
}

}  // namespace kformer::Impl::reference
