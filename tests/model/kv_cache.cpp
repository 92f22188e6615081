// SPDX-License-Identifier: MIT
// Caches that keep everything compute what attention over the whole text computes.
#include "kformer/model/kv_cache.hpp"

#include <algorithm>

#include "model/kv_cache_case.hpp"
#include "support/errors.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {
namespace {

using Stored = std::tuple<float, bf16, double>;

// Every ratio of query heads to key heads with every width of a head that kernels treat differently.
const std::vector<KvHeads> shapes{{1, 1, 8}, {8, 2, 64}, {8, 1, 128}, {4, 4, 64}, {4, 1, 10}};
const std::vector<std::int64_t> lengths{130, 1, 97, 0};

KvCacheOptions options_of(KvCacheKind kind) {
  KvCacheOptions o;
  o.kind = kind;
  o.batch = static_cast<std::int64_t>(lengths.size());
  o.capacity = 130;
  o.max_step_tokens = 64;
  o.window = 127;  // with the sinks, as many as there are tokens
  o.budget = 130;
  return o;
}

KvCacheOptions pages_of(std::int64_t page_tokens, std::int64_t pages) {
  KvCacheOptions o = options_of(KvCacheKind::paged);
  o.page_tokens = page_tokens;
  o.pages = pages;
  return o;
}

// Room for whole sequences next to each other; a pool as small as can be, where pages of sequences alternate.
const std::vector<KvCacheOptions> everything_kept{options_of(KvCacheKind::contiguous),
                                                  options_of(KvCacheKind::paged),
                                                  pages_of(16, 17),
                                                  pages_of(5, 26 + 1 + 20),
                                                  options_of(KvCacheKind::window),
                                                  options_of(KvCacheKind::heavy_hitters)};

}  // namespace

BOOST_AUTO_TEST_SUITE(kv_cache)

BOOST_AUTO_TEST_CASE(kinds_have_names) {
  BOOST_TEST(name_of(KvCacheKind::contiguous) == "contiguous");
  BOOST_TEST(name_of(KvCacheKind::paged) == "paged");
  BOOST_TEST(name_of(KvCacheKind::window) == "window");
  BOOST_TEST(name_of(KvCacheKind::int8) == "int8");
  BOOST_TEST(name_of(KvCacheKind::heavy_hitters) == "heavy_hitters");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(exact_kinds_equal_attention_over_the_whole_text, T, Stored) {
  unsigned seed = 1;
  for (const KvHeads& shape : shapes)
    for (const KvCacheOptions& options : everything_kept) {
      if (std::is_same_v<T, double> && shape.head_dim > 10) continue;  // its kernels treat all widths alike
      KvRun<T> run(kv_config(shape), options);
      BOOST_TEST(run.cache->exact());
      run.steps(random_steps(lengths, seed++));
      for (std::int64_t s = 0; s < options.batch; ++s) {
        BOOST_TEST(run.cache->length(s) == lengths[s]);
        BOOST_TEST(run.cache->stored(s) == lengths[s]);
        run.check(s);
      }
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_window_of_the_model_is_kept_by_every_kind, T, Stored) {
  unsigned seed = 1;
  for (const std::int64_t window : {1, 7, 64, 200})
    for (const KvCacheOptions& options : everything_kept) {
      KvRun<T> run(kv_config({8, 2, 16}, window), options);
      run.steps(random_steps(lengths, seed++));
      for (std::int64_t s = 0; s < options.batch; ++s) run.check(s);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(pages_give_the_bits_of_one_piece, T, Stored) {
  for (const KvHeads& shape : shapes)
    for (const KvCacheOptions& options : {options_of(KvCacheKind::paged), pages_of(16, 17), pages_of(1, 228)}) {
      KvRun<T> pages(kv_config(shape), options), piece(kv_config(shape), options_of(KvCacheKind::contiguous));
      const auto steps = random_steps(lengths, 7);
      pages.steps(steps);
      piece.steps(steps);
      for (std::int64_t s = 0; s < options.batch; ++s) BOOST_TEST((pages.bits(s) == piece.bits(s)));
    }
}

// A pool for all sequences has a place for each of them in one piece.
BOOST_AUTO_TEST_CASE(pages_of_a_whole_pool_are_read_where_they_are) {
  KvRun<float> run(kv_config({4, 2, 16}), options_of(KvCacheKind::paged));
  const ToolsRecorder recorder;
  run.steps(random_steps({130, 130, 130, 130}, 8));
  for (const auto& kernel : recorder.kernels())
    BOOST_TEST(!kernel.label.starts_with("kformer::kv_gather"), kernel.label);
}

BOOST_AUTO_TEST_CASE(softcap_scale_and_window_of_a_layer_reach_attention) {
  for (const KvCacheOptions& options : everything_kept) {
    const LlamaConfig config = kv_config({4, 2, 16}, options.kind == KvCacheKind::heavy_hitters ? 100 : 0);
    KvRun<float> run(config, options);
    run.attention = {.scale = 0.3, .window = 20, .softcap = 2};
    run.steps(random_steps(lengths, 3));
    for (std::int64_t s = 0; s < options.batch; ++s) run.check(s);
  }
}

BOOST_AUTO_TEST_CASE(an_empty_step_changes_nothing) {
  for (const KvCacheOptions& options : everything_kept) {
    KvRun<float> run(kv_config({4, 2, 16}), options);
    run.steps({{5, 0, 1, 0}, {0, 0, 0, 0}, {1, 0, 0, 0}});
    BOOST_TEST(run.cache->length(0) == 6);
    for (std::int64_t s = 0; s < options.batch; ++s) run.check(s);
  }
}

// What a sequence held before is still in memory when it starts again.
BOOST_AUTO_TEST_CASE_TEMPLATE(forgotten_tokens_never_leak, T, Stored) {
  for (const KvCacheOptions& options : everything_kept) {
    KvRun<T> run(kv_config({4, 2, 16}, 40), options);
    constexpr unsigned poisoned = 99;
    run.poison(poisoned);
    for (std::int64_t s = 0; s < options.batch; ++s) run.continue_with(s, poisoned);
    run.steps({{64, 1, 64, 0}, {40, 0, 30, 0}});
    for (std::int64_t s = 0; s < options.batch; ++s) {
      run.truncate(s, 0);
      run.continue_with(s, static_cast<unsigned>(s));
    }
    run.steps(random_steps(lengths, 5));
    for (std::int64_t s = 0; s < options.batch; ++s) run.check(s);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
