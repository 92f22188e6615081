// SPDX-License-Identifier: MIT
// Sequences of caches: fork, truncate, reset; refusals; memory.
#include "kformer/model/kv_cache.hpp"

#include "kformer/ops/impl/launch.hpp"
#include "model/kv_cache_case.hpp"
#include "support/errors.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {
namespace {

using Stored = std::tuple<float, bf16, double>;

KvCacheOptions options_of(KvCacheKind kind) {
  return {.kind = kind,
          .batch = 3,
          .capacity = 200,
          .max_step_tokens = 40,
          .sinks = 3,
          .window = 20,
          .budget = 24,
          .recent = 8};
}

const std::vector<KvCacheOptions> every_kind{
    options_of(KvCacheKind::contiguous), options_of(KvCacheKind::paged), options_of(KvCacheKind::window),
    options_of(KvCacheKind::int8), options_of(KvCacheKind::heavy_hitters)};

}  // namespace

BOOST_AUTO_TEST_SUITE(kv_cache_sequences)

// Two texts with a common beginning: computed once and forked, or each on its own.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_fork_has_the_bits_of_a_sequence_of_its_own, T, Stored) {
  const typename KvRun<T>::Steps diverging{{0, 1, 1}, {17, 0, 3}, {1, 1, 1}, {30, 40, 40}, {1, 1, 1}};
  for (const KvCacheOptions& options : every_kind)
    for (const std::int64_t common : {1, 16, 35}) {
      KvRun<T> forked(kv_config({4, 2, 16}), options), apart(kv_config({4, 2, 16}), options);
      forked.steps({{common, 7, 0}, {1, 0, 0}});
      forked.fork(0, 1);
      forked.fork(0, 2);
      forked.fork(0, 0);
      for (const unsigned s : {1u, 2u}) apart.continue_with(s, 0);
      apart.steps({{common, common, common}, {1, 1, 1}});
      for (const unsigned s : {0u, 1u, 2u}) {
        forked.continue_with(s, 10 + s);
        apart.continue_with(s, 10 + s);
      }
      forked.steps(diverging);
      apart.steps(diverging);
      for (std::int64_t s = 0; s < 3; ++s) {
        BOOST_TEST((forked.bits(s) == apart.bits(s)), name_of(options.kind).data() << ", sequence " << s);
        BOOST_TEST(forked.cache->length(s) == apart.cache->length(s));
        BOOST_TEST(forked.cache->stored(s) == apart.cache->stored(s));
      }
    }
}

BOOST_AUTO_TEST_CASE(pages_are_shared_until_one_writes) {
  KvRun<float> run(kv_config({4, 2, 16}), options_of(KvCacheKind::paged));
  run.step({40, 0, 0});
  BOOST_TEST(run.cache->used_slots() == 48);
  run.fork(0, 1);
  run.fork(0, 2);
  BOOST_TEST(run.cache->used_slots() == 48);
  run.step({0, 1, 0});  // its own copy of the third page
  BOOST_TEST(run.cache->used_slots() == 64);
  run.step({1, 1, 1});  // one more copy: the last owner keeps the page
  BOOST_TEST(run.cache->used_slots() == 80);
  for (std::int64_t s = 0; s < 3; ++s) run.check(s);
  run.truncate(1, 32);
  BOOST_TEST(run.cache->used_slots() == 64);
  run.truncate(0, 0);
  run.truncate(2, 0);
  BOOST_TEST(run.cache->used_slots() == 32);
  run.truncate(1, 0);
  BOOST_TEST(run.cache->used_slots() == 0);
}

BOOST_AUTO_TEST_CASE(a_common_beginning_fits_where_copies_would_not) {
  KvCacheOptions options = options_of(KvCacheKind::paged);
  options.pages = 8;
  KvRun<float> run(kv_config({4, 2, 16}), options);
  run.steps({{40, 0, 0}, {24, 0, 0}, {15, 0, 0}});
  run.fork(0, 1);
  run.fork(0, 2);
  run.step({1, 1, 1});  // 5 pages, two copies of the last one
  BOOST_TEST(run.cache->used_slots() == 7 * 16);
  for (std::int64_t s = 0; s < 3; ++s) run.check(s);
  run.truncate(2, 79);
  check_error<NotSupported>(
      [&] { run.step({16, 16, 16}); },
      "kformer::KvCache::begin_step: the step needs 3 more pages of 16 tokens, 1 of 8 are free; make the cache "
      "with more pages, truncate or reset sequences (paged cache)");
  BOOST_TEST(run.cache->used_slots() == 7 * 16);
  run.step({16, 0, 0});
  for (std::int64_t s = 0; s < 3; ++s) run.check(s);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_cut_sequence_goes_on_with_another_text, T, Stored) {
  for (const KvCacheOptions& options : every_kind)
    for (const std::int64_t length : {0, 2, 17, 33}) {
      const bool keeps_all = options.kind != KvCacheKind::heavy_hitters && options.kind != KvCacheKind::window;
      if (!keeps_all && length > 2) continue;
      if (options.kind == KvCacheKind::heavy_hitters && length > 0) continue;
      KvRun<T> cut(kv_config({4, 2, 16}), options), fresh(kv_config({4, 2, 16}), options);
      cut.steps({{length, 3, 1}, {40, 1, 0}, {40, 0, 0}});
      cut.truncate(0, length);
      fresh.steps({{length, 3, 1}, {0, 1, 0}});
      cut.continue_with(0, 10);
      fresh.continue_with(0, 10);
      const typename KvRun<T>::Steps rest{{40, 1, 0}, {1, 0, 1}, {40, 0, 40}, {1, 0, 0}};
      cut.steps(rest);
      fresh.steps(rest);
      for (std::int64_t s = 0; s < 3; ++s)
        BOOST_TEST((cut.bits(s) == fresh.bits(s)), name_of(options.kind).data() << " cut to " << length);
    }
}

BOOST_AUTO_TEST_CASE(a_window_is_cut_where_it_still_has_what_is_seen) {
  KvRun<float> run(kv_config({4, 2, 16}), options_of(KvCacheKind::window));
  run.steps({{40, 40, 20}, {40, 40, 0}, {1, 1, 0}, {1, 1, 0}});
  // The sinks and positions 61 to 81: with what comes next the first query sees back to 61 again.
  BOOST_TEST(run.cache->stored(0) == 3 + 21);
  check_error<NotSupported>(
      [&] { run.truncate(0, 79); },
      "kformer::KvCache::truncate: sequence 0 has dropped tokens that a query at position 79 would see; cut it "
      "to 80 tokens or more, or to 3 or less (window cache)");
  run.truncate(0, 80);
  run.truncate(1, 3);
  run.truncate(2, 11);
  BOOST_TEST(run.cache->stored(0) == 3 + 19);
  BOOST_TEST(run.cache->stored(1) == 3);
  BOOST_TEST(run.cache->stored(2) == 11);
  for (const unsigned s : {0u, 1u, 2u}) run.continue_with(s, 10 + s);
  run.steps({{1, 40, 30}, {30, 1, 30}, {1, 1, 1}});
  for (std::int64_t s = 0; s < 3; ++s) {
    const std::int64_t length = run.length(s);
    HostTensor<double> bias({1, 1, length, length});
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t j = 3; j <= i - 20; ++j) bias(0, 0, i, j) = -std::numeric_limits<double>::infinity();
    run.check(s, bias);
  }
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused_and_changes_nothing) {
  for (const KvCacheOptions& options : every_kind) {
    const std::string kind = std::string(" (") + name_of(options.kind).data() + " cache)";
    KvRun<float> run(kv_config({4, 2, 16}), options);
    auto& cache = *run.cache;
    const auto begin = [&](std::vector<std::int64_t> counts) { cache.begin_step(Exec(), counts); };
    run.steps({{40, 3, 0}, {40, 0, 0}, {40, 0, 0}, {40, 0, 0}, {39, 0, 0}});
    check_error<NotSupported>([&] { begin({2, 1, 1}); },
                              "kformer::KvCache::begin_step: sequence 0 would have 201 tokens, its capacity is "
                              "200; make the cache larger, truncate or reset the sequence" +
                                  kind);
    check_error<NotSupported>([&] { begin({0, 41, 1}); },
                              "kformer::KvCache::begin_step: sequence 1 gets 41 new tokens, a step takes 0 to "
                              "40; split the step" +
                                  kind);
    check_error<NotSupported>([&] { begin({0, -1, 1}); },
                              "kformer::KvCache::begin_step: sequence 1 gets -1 new tokens, a step takes 0 to "
                              "40; split the step" +
                                  kind);
    check_error<NotSupported>(
        [&] { begin({0, 1}); },
        "kformer::KvCache::begin_step: new_tokens has 2 numbers, expected 3, one for each sequence "
        "of the batch" +
            kind);
    const auto open = "a step is open; call end_step first" + kind;
    const auto closed = "no step is open; call begin_step first" + kind;
    check_error<NotSupported>([&] { cache.end_step(Exec()); }, "kformer::KvCache::end_step: " + closed);
    check_error<NotSupported>(
        [&] { cache.truncate(1, 4); },
        "kformer::KvCache::truncate: sequence 1 has 3 tokens, it cannot be cut to 4" + kind);
    check_error<NotSupported>([&] { cache.fork(Exec(), 0, 3); },
                              "kformer::KvCache::fork: there is no sequence 3 in a batch of 3" + kind);
    check_error<NotSupported>([&] { cache.reset(-1); },
                              "kformer::KvCache::truncate: there is no sequence -1 in a batch of 3" + kind);
    check_error<NotSupported>([&] { cache.length(3); },
                              "kformer::KvCache::length: there is no sequence 3 in a batch of 3" + kind);
    begin({0, 0, 0});
    check_error<NotSupported>([&] { begin({0, 0, 0}); }, "kformer::KvCache::begin_step: " + open);
    check_error<NotSupported>([&] { cache.fork(Exec(), 0, 1); }, "kformer::KvCache::fork: " + open);
    check_error<NotSupported>([&] { cache.reset(0); }, "kformer::KvCache::truncate: " + open);
    cache.end_step(Exec());
    BOOST_TEST(cache.length(0) == 199);
    BOOST_TEST(cache.length(1) == 3);
    run.step({1, 1, 1});
    BOOST_TEST(cache.length(0) == 200);
  }
}

// With keys and values of other tokens in a layer, and where a copy of a shared page was made.
BOOST_AUTO_TEST_CASE(a_cancelled_step_changes_nothing) {
  TestTensor<Exec, float> q({21, 4, 16}), k({21, 2, 16}), out({21, 4, 16});
  q.fill([](std::size_t i) { return static_cast<float>(i % 7) - 3; });
  k.fill([](std::size_t i) { return static_cast<float>(i % 5) - 2; });
  for (const KvCacheOptions& options : every_kind) BOOST_TEST_CONTEXT(name_of(options.kind)) {
      KvRun<float> cancelled(kv_config({4, 2, 16}), options), whole(kv_config({4, 2, 16}), options);
      for (KvRun<float>* run : {&cancelled, &whole}) {
        run->steps({{40, 7, 0}, {1, 0, 0}});
        run->fork(0, 2);
      }
      auto& cache = *cancelled.cache;
      for (int n = 0; n < 3; ++n) {
        cache.begin_step(Exec(), std::vector<std::int64_t>{20, 0, 1});
        // Heavy hitters would count the attention of its queries.
        if (options.kind != KvCacheKind::heavy_hitters)
          cache.attend(Exec(), 0, q.view<3>(), k.view<3>(), k.view<3>(), out.view<3>());
        cache.cancel_step();
        for (std::int64_t s = 0; s < 3; ++s) {
          BOOST_TEST(cache.length(s) == whole.cache->length(s));
          BOOST_TEST(cache.stored(s) == whole.cache->stored(s));
        }
      }
      if (options.kind == KvCacheKind::paged) BOOST_TEST(cache.used_slots() == 16 * (3 + 1 + 1));
      for (KvRun<float>* run : {&cancelled, &whole}) run->steps({{1, 1, 3}, {40, 0, 17}});
      for (std::int64_t s = 0; s < 3; ++s) BOOST_TEST((cancelled.bits(s) == whole.bits(s)), "sequence " << s);
      check_error<NotSupported>([&] { cache.cancel_step(); },
                                std::string("kformer::KvCache::cancel_step: no step is open; call begin_step "
                                            "first (") +
                                    name_of(options.kind).data() + " cache)");
    }
}

BOOST_AUTO_TEST_CASE(room_is_what_steps_can_fill) {
  for (const KvCacheOptions& options : every_kind) BOOST_TEST_CONTEXT(name_of(options.kind)) {
      KvRun<float> run(kv_config({4, 2, 16}), options);
      auto& cache = *run.cache;
      const auto room = [&](std::vector<std::int64_t> counts) { return cache.has_room(counts); };
      run.steps({{40, 3, 0}, {40, 0, 0}});
      BOOST_TEST(room({120, 197, 200}));
      BOOST_TEST(!room({121, 0, 0}));
      BOOST_TEST(!room({0, 0, 201}));
      run.steps({{40, 0, 0}, {40, 0, 0}, {40, 0, 0}});
      BOOST_TEST(!room({1, 0, 0}));
      BOOST_TEST(room({0, 1, 1}));
      check_error<NotSupported>(
          [&] { room({0, 1}); },
          "kformer::KvCache::has_room: new_tokens has 2 numbers, expected 3, one for each "
          "sequence of the batch (" +
              std::string(name_of(options.kind)) + " cache)");
    }
  // Sequences share pages until they write to them.
  KvCacheOptions options = options_of(KvCacheKind::paged);
  options.pages = 3;
  options.page_tokens = 4;
  KvRun<float> run(kv_config({4, 2, 16}), options);
  auto& cache = *run.cache;
  const auto room = [&](std::vector<std::int64_t> counts) { return cache.has_room(counts); };
  run.step({6, 0, 0});
  cache.fork(Exec(), 0, 1);
  BOOST_TEST(room({2, 2, 0}));
  BOOST_TEST(!room({3, 2, 0}));
  BOOST_TEST(!room({3, 0, 0}));
  BOOST_TEST(!room({2, 0, 4}));
  cache.fork(Exec(), 0, 2);
  BOOST_TEST(room({1, 0, 0}));
  BOOST_TEST(!room({1, 1, 0}));
  BOOST_TEST(!room({1, 1, 1}));
}

BOOST_AUTO_TEST_CASE(attend_names_what_does_not_fit) {
  KvRun<float> run(kv_config({4, 2, 16}), options_of(KvCacheKind::contiguous));
  auto& cache = *run.cache;
  TestTensor<Exec, float> q({3, 4, 16}), k({3, 2, 16}), out({3, 4, 16}), short_k({2, 2, 16});
  const auto attend = [&](std::int64_t layer, const auto& keys, const AttentionOptions& options = {}) {
    cache.attend(Exec(), layer, q.view<3>(), keys.template view<3>(), k.view<3>(), out.view<3>(), options);
  };
  check_error<NotSupported>(
      [&] { attend(0, k); },
      "kformer::KvCache::attend: no step is open; call begin_step first (contiguous cache)");
  cache.begin_step(Exec(), std::vector<std::int64_t>{2, 0, 1});
  check_error<NotSupported>(
      [&] { attend(2, k); },
      "kformer::KvCache::attend: layer 2 is outside the 2 layers of the cache; expected 0 to "
      "1 (contiguous cache)");
  check_error<NotSupported>([&] { attend(0, k, {.window = -1}); },
                            "kformer::KvCache::attend: window must not be negative, got -1 (contiguous cache)");
  check_error<DimensionMismatch>(
      [&] { attend(0, short_k); },
      "kformer::KvCache::attend: extents do not match: q[3,4,16] k[2,2,16] v[3,2,16] out[3,4,16]; expected "
      "q[3,4,16] like out and k[3,2,16] like v, the rows of the step");
  // The expected extents are those of the error before.
  const auto refused = [&](const std::string& given, const auto& queries, const auto& values,
                           const auto& results) {
    check_error<DimensionMismatch>(
        [&] {
          cache.attend(Exec(), 0, queries.template view<3>(), k.view<3>(), values.template view<3>(),
                       results.template view<3>());
        },
        "kformer::KvCache::attend: extents do not match: " + given +
            "; expected q[3,4,16] like out and k[3,2,16] like v, the rows of the step");
  };
  const TestTensor<Exec, float> few_queries({3, 2, 16}), more_values({3, 3, 16}), short_out({2, 4, 16});
  refused("q[3,2,16] k[3,2,16] v[3,2,16] out[3,4,16]", few_queries, k, out);
  refused("q[3,4,16] k[3,2,16] v[3,3,16] out[3,4,16]", q, more_values, out);
  refused("q[3,4,16] k[3,2,16] v[3,2,16] out[2,4,16]", q, k, short_out);
}

// Long before there are as many tokens, and before anything is kept.
BOOST_AUTO_TEST_CASE(heavy_hitters_without_a_mask_refuse_a_window_at_once) {
  TestTensor<Exec, float> q({3, 4, 16}), k({3, 2, 16}), out({3, 4, 16});
  const auto attend = [&](KvRun<float>& run, std::int64_t window) {
    run.cache->begin_step(Exec(), std::vector<std::int64_t>{2, 0, 1});
    run.cache->attend(Exec(), 0, q.view<3>(), k.view<3>(), k.view<3>(), out.view<3>(), {.window = window});
    run.cache->cancel_step();
  };
  KvRun<float> run(kv_config({4, 2, 16}), options_of(KvCacheKind::heavy_hitters)),
      masked(kv_config({4, 2, 16}, 100), options_of(KvCacheKind::heavy_hitters));
  const ToolsRecorder recorder;
  check_error<NotSupported>([&] { attend(run, 50); },
                            "kformer::KvCache::attend: a window of 50 needs a mask, and the model has no "
                            "sliding_window; set it in the configuration (heavy_hitters cache)");
  for (const auto& kernel : recorder.kernels()) BOOST_TEST(!kernel.label.starts_with("kformer::kv_append"));
  run.cache->cancel_step();
  attend(run, 200);  // the capacity
  attend(masked, 50);
  Exec().fence("kformer::Testing::kv_cache");
}

BOOST_AUTO_TEST_CASE(options_are_checked) {
  const auto refused = [](KvCacheOptions options, const std::string& sentence) {
    if (options.num_layers == 0) options.num_layers = 2;
    check_error<NotSupported>(
        [&] { KvCache<Exec, float>::create(kv_config({4, 2, 16}), options, *Ledger::create()); },
        "kformer::KvCache::create: " + sentence + " (" + name_of(options.kind).data() + " cache)");
  };
  const auto with = [](KvCacheKind kind, auto change) {
    KvCacheOptions o = options_of(kind);
    change(o);
    return o;
  };
  const std::string most = " and 2147483647, got ";
  refused(with(KvCacheKind::contiguous, [](auto& o) { o.num_layers = -1; }),
          "num_layers must lie between 1" + most + "-1");
  refused(with(KvCacheKind::int8, [](auto& o) { o.batch = 0; }), "batch must lie between 1" + most + "0");
  refused(with(KvCacheKind::int8, [](auto& o) { o.capacity = 0; }), "capacity must lie between 1" + most + "0");
  refused(with(KvCacheKind::window, [](auto& o) { o.capacity = -1; }),
          "capacity must lie between 0" + most + "-1");
  refused(with(KvCacheKind::paged, [](auto& o) { o.max_step_tokens = 0; }),
          "max_step_tokens must lie between 1" + most + "0");
  refused(with(KvCacheKind::paged, [](auto& o) { o.page_tokens = 0; }),
          "page_tokens must lie between 1" + most + "0");
  refused(with(KvCacheKind::paged, [](auto& o) { o.pages = -1; }), "pages must lie between 0" + most + "-1");
  refused(with(KvCacheKind::none, [](auto&) {}), "`none` is not a cache; choose another kind");
  refused(with(KvCacheKind::heavy_hitters, [](auto& o) { o.recent = -1; }),
          "recent must lie between 1" + most + "-1");
  refused(with(KvCacheKind::window, [](auto& o) { o.window = 0; }), "window must lie between 1" + most + "0");
  refused(with(KvCacheKind::window, [](auto& o) { o.sinks = -1; }), "sinks must lie between 0" + most + "-1");
  refused(with(KvCacheKind::heavy_hitters, [](auto& o) { o.budget = 0; }),
          "budget must lie between 1" + most + "0");
  refused(with(KvCacheKind::heavy_hitters, [](auto& o) { o.recent = 25; }),
          "recent 25 must not exceed budget 24");
  refused(with(KvCacheKind::contiguous, [](auto& o) { o.capacity = o.batch = 1 << 20; }),
          "1099511627776 slots of all sequences are more than the 2147483647 that can be numbered; use several "
          "caches");
}

// The formulas of docs/blocks/kv_cache.md.
BOOST_AUTO_TEST_CASE_TEMPLATE(memory_is_what_the_documentation_says, T, Stored) {
  constexpr std::size_t layers = 2, batch = 3, heads = 2, dim = 64, c = sizeof(compute_t<T>), index = 4;
  const auto up = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const auto bytes_of = [](KvCacheKind kind, MemoryClass memory_class, Ledger::Mode mode) {
    const auto ledger = Ledger::create(mode);
    KvCacheOptions options = options_of(kind);
    options.num_layers = layers;
    options.capacity = 208;
    const auto cache = KvCache<Exec, T>::create(kv_config({4, heads, dim}), options, *ledger);
    return ledger->current(memory_class);
  };
  const auto kept = [&](KvCacheKind kind) {
    for (const MemoryClass memory_class : {MemoryClass::kv_cache, MemoryClass::workspace})
      BOOST_TEST(bytes_of(kind, memory_class, Ledger::Mode::count) ==
                 bytes_of(kind, memory_class, Ledger::Mode::allocate));
    return bytes_of(kind, MemoryClass::kv_cache, Ledger::Mode::count);
  };
  const std::size_t token = 2 * layers * heads * dim * sizeof(T);
  BOOST_TEST(kept(KvCacheKind::contiguous) == batch * 208 * token);
  BOOST_TEST(kept(KvCacheKind::paged) == batch * 208 * token + batch * 13 * index);
  BOOST_TEST(kept(KvCacheKind::window) == batch * (3 + 20 - 1 + 16 + 40) * token);
  BOOST_TEST(kept(KvCacheKind::heavy_hitters) == batch * (24 + 40) * token +
                                                     up(layers * batch * heads * 64 * c) +
                                                     up(layers * batch * heads * 64 * 4));
  const std::size_t int8 = kept(KvCacheKind::int8);
  BOOST_TEST(int8 == batch * 208 * 2 * layers * heads * (dim + c));
  BOOST_TEST(int8 < kept(KvCacheKind::contiguous) * (sizeof(T) == 2 ? 0.54 : 0.27));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(steps_allocate_nothing_and_do_not_fence, T, Stored) {
  for (const KvCacheOptions& options : every_kind) {
    KvRun<T> run(kv_config({4, 2, 16}), options);
    TestTensor<Exec, T> q({3, 4, 16}), k({3, 2, 16}), out({3, 4, 16});
    const auto step = [&] {
      run.cache->begin_step(Exec(), std::vector<std::int64_t>{1, 1, 1});
      for (std::int64_t layer = 0; layer < KvRun<T>::layers; ++layer)
        run.cache->attend(Exec(), layer, q.template view<3>(), k.template view<3>(), k.template view<3>(),
                          out.template view<3>());
      run.cache->end_step(Exec());
    };
    run.step({40, 40, 40});
    step();
    run.fork(0, 1);
    const ToolsRecorder recorder;
    for (int n = 0; n < 30; ++n) step();
    for (const auto& allocation : recorder.allocations())
      BOOST_ERROR(name_of(options.kind).data() << " allocates " << allocation.label);
    for (const auto& fence : recorder.fences())
      BOOST_TEST((!Impl::is_host_space<Exec> && fence == "kformer::KvCache::begin_step"), fence);
    for (const auto& kernel : recorder.kernels())
      BOOST_TEST(kernel.label.starts_with("kformer::"), kernel.label);
    BOOST_TEST(recorder.kernels().size() > 0u);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
