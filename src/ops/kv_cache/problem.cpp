// SPDX-License-Identifier: MIT
#include <cmath>
#include <limits>

#include "kformer/ops/kv_cache.hpp"
#include "kformer/ops/kv_cache_eviction.hpp"
#include "kformer/ops/kv_cache_int8.hpp"
#include "ops/common/held_numbers.hpp"

namespace kformer::Impl {

namespace {

bool same_rows(const TensorRef& a, const TensorRef& b) {
  return a.extent[1] == b.extent[1] && a.extent[2] == b.extent[2];
}

// Slots are counted in int32.
void check_slots(const Operands& all, const TensorRef& cache) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  all.require_option(cache.extent[0] <= most, "a cache has at most " + std::to_string(most) + " slots, not " +
                                                  std::to_string(cache.extent[0]) + "; split it");
}

}  // namespace

Operands KvAppend::operands() const {
  return Operands(function, {{"k", k}, {"v", v}, {"slots", slots}, {"k_cache", k_cache}, {"v_cache", v_cache}});
}

void KvAppend::check() const {
  const Operands all = operands();
  all.require_floating("k")
      .require_dtype("v", k.dtype)
      .require_dtype("k_cache", k.dtype)
      .require_dtype("v_cache", k.dtype)
      .require_dtype("slots", DType::i32)
      .require_extents(v.extent[0] == k.extent[0] && slots.has_extents({k.extent[0]}),
                       "k, v and slots to have the same rows")
      .require_extents(same_rows(k, k_cache) && same_rows(v, v_cache) && k.extent[1] == v.extent[1],
                       "rows of the caches to be like those of k and v, with the same heads")
      .require_extents(k_cache.extent[0] == v_cache.extent[0], "k_cache and v_cache to have the same slots")
      .require_unit_stride()
      .require_disjoint("k_cache")
      .require_disjoint("v_cache");
  check_slots(all, k_cache);
}

Operands KvGather::operands() const {
  return Operands(function, {{"k_cache", k_cache}, {"v_cache", v_cache}, {"pages", pages}, {"k", k}, {"v", v}});
}

void KvGather::check() const {
  const Operands all = operands();
  all.require_option(page_tokens > 0, "page_tokens must be positive, got " + std::to_string(page_tokens))
      .require_floating("k_cache")
      .require_dtype("v_cache", k_cache.dtype)
      .require_dtype("k", k_cache.dtype)
      .require_dtype("v", k_cache.dtype)
      .require_dtype("pages", DType::i32)
      .require_extents(same_rows(k, k_cache) && same_rows(v, v_cache) && k.extent[1] == v.extent[1],
                       "rows of the caches to be like those of k and v, with the same heads")
      .require_extents(k_cache.extent[0] == v_cache.extent[0], "k_cache and v_cache to have the same slots")
      .require_extents(
          k.extent[0] == v.extent[0] && k.extent[0] <= pages.extent[0] * page_tokens,
          "k and v to have the same tokens, at most " + std::to_string(page_tokens) + " for a page")
      .require_unit_stride()
      .require_disjoint("k")
      .require_disjoint("v");
  check_slots(all, k_cache);
}

Operands KvCopy::operands() const { return Operands(function, {{"from", from}, {"to", to}}); }

void KvCopy::check() const {
  operands()
      .require_dtype("to", from.dtype)
      .require_extents(from.same_extents(to), "to to have the extents of from")
      .require_unit_stride()
      .require_disjoint("to");
}

Operands KvCompact::operands() const { return Operands(function, {{"cache", cache}, {"kept", kept}}); }

void KvCompact::check() const {
  const auto fits = [](std::int64_t given, std::int64_t all) { return given == 1 || given == all; };
  operands()
      .require_dtype("kept", DType::i32)
      .require_extents(fits(kept.extent[0], cache.extent[0]) && fits(kept.extent[1], cache.extent[2]) &&
                           kept.extent[2] <= cache.extent[1],
                       "kept[arrays or 1,heads or 1,at most slots] for cache[arrays,slots,heads,features]")
      .require_unit_stride()
      .require_disjoint("cache");
}

Operands KvAppendInt8::operands() const {
  return Operands(function, {{"k", k},
                             {"v", v},
                             {"slots", slots},
                             {"k_codes", k_cache.codes},
                             {"k_scale", k_cache.scale},
                             {"v_codes", v_cache.codes},
                             {"v_scale", v_cache.scale}});
}

namespace {

void check_codes(const Operands& all, const TensorRef& k, const TensorRef& v, const KvCodes& k_cache,
                 const KvCodes& v_cache) {
  const auto fits = [](const TensorRef& x, const KvCodes& cache) {
    return same_rows(x, cache.codes) && cache.scale.has_extents({cache.codes.extent[0], x.extent[1]});
  };
  all.require_floating("k")
      .require_dtype("v", k.dtype)
      .require_dtype("k_codes", DType::u8)
      .require_dtype("v_codes", DType::u8)
      .require_dtype("k_scale", compute_dtype(k.dtype))
      .require_dtype("v_scale", compute_dtype(k.dtype))
      .require_extents(
          fits(k, k_cache) && fits(v, v_cache) && k.extent[0] == v.extent[0] && k.extent[1] == v.extent[1],
          "rows of codes to be like those of k and v, with a scale for each slot and head")
      .require_extents(k_cache.codes.extent[0] == v_cache.codes.extent[0],
                       "k_codes and v_codes to have the same slots");
}

}  // namespace

void KvAppendInt8::check() const {
  const Operands all = operands();
  check_codes(all, k, v, k_cache, v_cache);
  all.require_dtype("slots", DType::i32)
      .require_extents(slots.has_extents({k.extent[0]}), "a slot for each row of k and v")
      .require_unit_stride();
  for (const char* role : {"k_codes", "k_scale", "v_codes", "v_scale"}) all.require_disjoint(role);
  check_slots(all, k_cache.codes);
}

Operands KvGatherInt8::operands() const {
  return Operands(function, {{"k_codes", k_cache.codes},
                             {"k_scale", k_cache.scale},
                             {"v_codes", v_cache.codes},
                             {"v_scale", v_cache.scale},
                             {"k", k},
                             {"v", v}});
}

void KvGatherInt8::check() const {
  const Operands all = operands();
  check_codes(all, k, v, k_cache, v_cache);
  all.require_extents(k_cache.codes.extent[0] == k.extent[0], "the codes of each row of k and v")
      .require_unit_stride()
      .require_disjoint("k")
      .require_disjoint("v");
}

Operands KvAttentionMass::operands() const {
  return Operands(function, {{"q", q}, {"k", k}, {"lse", lse}, {"positions", positions}, {"mass", mass}});
}

void KvAttentionMass::check() const {
  const std::int64_t kv_heads = k.extent[1], kv_len = k.extent[0];
  const bool groups = kv_heads == q.extent[1] || (kv_heads > 0 && q.extent[1] % kv_heads == 0);
  const Operands all = operands();
  all.require_floating("q")
      .require_dtype("k", q.dtype)
      .require_dtype("lse", compute_dtype(q.dtype))
      .require_dtype("mass", compute_dtype(q.dtype))
      .require_dtype("positions", DType::i32)
      .require_extents(k.extent[2] == q.extent[2] && groups && q.extent[0] <= kv_len,
                       "k[kv_len,kv_heads,head_dim] with kv_heads dividing q_heads and at least q_len keys")
      .require_extents(lse.has_extents({q.extent[1], q.extent[0]}), "lse[q_heads,q_len]")
      .require_extents(positions.has_extents({kv_heads, kv_len}) && mass.has_extents({kv_heads, kv_len}),
                       "positions[kv_heads,kv_len] and mass[kv_heads,kv_len]")
      .require_option(std::isfinite(options.scale),
                      "scale must be finite, got " + std::to_string(options.scale))
      .require_option(options.window >= 0, "window must not be negative, got " + std::to_string(options.window))
      .require_option(options.softcap >= 0 && std::isfinite(options.softcap),
                      "softcap must be finite and not negative, got " + std::to_string(options.softcap))
      .require_unit_stride()
      .require_disjoint("mass");
  require_held(all, "scale", options.scale, compute_dtype(q.dtype));
  require_held(all, "softcap", options.softcap, compute_dtype(q.dtype));
}

Operands KvHeavyHitters::operands() const { return Operands(function, {{"mass", mass}, {"kept", kept}}); }

void KvHeavyHitters::check() const {
  const std::int64_t count = kept.extent[2];
  operands()
      .require_floating("mass")
      .require_dtype("mass", compute_dtype(mass.dtype))
      .require_dtype("kept", DType::i32)
      .require_extents(
          kept.extent[0] == mass.extent[0] && kept.extent[1] == mass.extent[1] && count <= mass.extent[2],
          "kept[arrays,heads,at most tokens] for mass[arrays,heads,tokens]")
      .require_option(recent >= 0 && recent <= count, "recent must lie between 0 and the " +
                                                          std::to_string(count) + " kept tokens, got " +
                                                          std::to_string(recent))
      .require_unit_stride()
      .require_disjoint("kept");
}

Operands KvMask::operands() const { return Operands(function, {{"positions", positions}, {"bias", bias}}); }

void KvMask::check() const {
  const std::int64_t heads = positions.extent[0];
  const bool groups = heads == bias.extent[0] || (heads > 0 && bias.extent[0] % heads == 0);
  const Operands all = operands();
  all.require_floating("bias")
      .require_dtype("positions", DType::i32)
      .require_extents(
          groups && bias.extent[2] == positions.extent[1] && bias.extent[1] <= bias.extent[2],
          "bias[heads,at most kv_len,kv_len] for positions[kv_heads,kv_len], with kv_heads dividing heads")
      .require_unit_stride()
      .require_disjoint("bias");
  const auto check_option = [&](const char* name, std::int64_t value) {
    all.require_option(value >= 0, std::string(name) + " must not be negative, got " + std::to_string(value));
  };
  check_option("window", options.window);
  check_option("sinks", options.sinks);
  check_option("model_window", options.model_window);
}

}  // namespace kformer::Impl
