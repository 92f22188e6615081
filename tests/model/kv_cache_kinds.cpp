// SPDX-License-Identifier: MIT
// Caches that keep less: they keep what they promise, and queries see exactly that.
#include "kformer/model/kv_cache.hpp"

#include <cmath>

#include "model/kv_cache_case.hpp"
#include "ops/kv_cache/reference.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

namespace ref = Impl::reference;
using Stored = std::tuple<float, bf16, double>;
const std::vector<std::int64_t> lengths{200, 1, 97};

/// Visible(i, j) as a bias for attention over a whole text.
template <class F>
HostTensor<double> mask_of(std::int64_t length, F visible) {
  HostTensor<double> bias({1, 1, length, length});
  for (std::int64_t i = 0; i < length; ++i)
    for (std::int64_t j = 0; j < length; ++j)
      if (!visible(i, j)) bias(0, 0, i, j) = -std::numeric_limits<double>::infinity();
  return bias;
}

KvCacheOptions window_of(std::int64_t window, std::int64_t sinks, std::int64_t capacity = 0) {
  return {.kind = KvCacheKind::window,
          .batch = 3,
          .capacity = capacity,
          .max_step_tokens = 64,
          .sinks = sinks,
          .window = window};
}

KvCacheOptions int8_options() {
  return {.kind = KvCacheKind::int8, .batch = 3, .capacity = 200, .max_step_tokens = 64};
}

/// What an int8 cache keeps of keys or values: (1, length, heads, head_dim), rounded to T.
template <class T, class Real>
HostTensor<Real> rounded_to_int8(const HostTensor<compute_t<T>>& x) {
  using C = compute_t<T>;
  const std::int64_t length = x.extent(1), heads = x.extent(2), dim = x.extent(3);
  HostTensor<C> rows({length, heads, dim}), slots({length});
  rows.values() = x.values();
  for (std::int64_t n = 0; n < length; ++n) slots(n) = static_cast<C>(n);
  const auto kept = ref::kv_gather_int8(ref::kv_append_int8<C>(
      rows, slots, {HostTensor<C>({length, heads, dim}), HostTensor<C>({length, heads})}));
  HostTensor<Real> all({1, length, heads, dim});
  for (std::size_t i = 0; i < all.values().size(); ++i)
    all.values()[i] = static_cast<Real>(Impl::stored<T>(kept.values()[i]));
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(kv_cache_kinds)

BOOST_AUTO_TEST_CASE_TEMPLATE(window_sees_the_first_tokens_and_the_last, T, Stored) {
  unsigned seed = 1;
  for (const std::int64_t window : {1, 5, 32, 150})
    for (const std::int64_t sinks : {0, 1, 4, 70})
      for (const std::int64_t model : {0, 3, 40}) {
        const std::int64_t capacity = seed % 2 == 0 ? 200 : 0;
        KvRun<T> run(kv_config({4, 2, 16}, model), window_of(window, sinks, capacity));
        run.steps(random_steps(lengths, seed++));
        for (std::int64_t s = 0; s < 3; ++s)
          run.check(s, mask_of(lengths[s], [=](std::int64_t i, std::int64_t j) {
                      return (j < sinks || i - j < window) && (model == 0 || i - j < model);
                    }));
      }
}

BOOST_AUTO_TEST_CASE(window_drops_what_no_query_will_see) {
  KvRun<float> run(kv_config({4, 2, 16}), window_of(32, 4));
  run.steps({{64, 3, 0}});
  BOOST_TEST(run.cache->stored(0) == 4 + 31);
  BOOST_TEST(run.cache->stored(1) == 3);
  std::int64_t most = 0;
  for (int n = 0; n < 100; ++n) {
    run.step({1, 0, 0});
    most = std::max(most, run.cache->stored(0));
  }
  BOOST_TEST(run.cache->length(0) == 164);
  BOOST_TEST(most == 4 + 31 + 16);  // dropped sixteen at a time
  BOOST_TEST(!run.cache->exact());
}

BOOST_AUTO_TEST_CASE(a_wide_window_drops_an_eighth_at_a_time) {
  KvRun<float> run(kv_config({4, 2, 16}), window_of(160, 0));
  run.steps({{64, 0, 0}, {64, 0, 0}});
  std::int64_t most = 0;
  for (int n = 0; n < 80; ++n) {
    run.step({1, 0, 0});
    most = std::max(most, run.cache->stored(0));
  }
  BOOST_TEST(most == 159 + 20);
}

// A query sees the sinks and itself, whatever was dropped before it.
BOOST_AUTO_TEST_CASE(a_window_of_one_is_cut_anywhere) {
  KvRun<float> run(kv_config({4, 2, 16}), window_of(1, 4));
  run.steps({{64, 0, 0}, {3, 0, 0}});
  run.truncate(0, 50);
  BOOST_TEST(run.cache->stored(0) == 4);
  run.continue_with(0, 10);
  run.steps({{1, 0, 0}, {17, 0, 0}});
  run.check(0, mask_of(run.length(0), [](std::int64_t i, std::int64_t j) { return j < 4 || i == j; }));
}

BOOST_AUTO_TEST_CASE(window_is_exact_where_it_keeps_all_that_the_model_sees) {
  const auto exact = [](const KvCacheOptions& options, std::int64_t model) {
    return KvRun<float>(kv_config({4, 2, 16}, model), options).cache->exact();
  };
  BOOST_TEST(exact(window_of(32, 4), 32));
  BOOST_TEST(!exact(window_of(31, 4), 32));
  BOOST_TEST(exact(window_of(31, 4, 35), 0));
  BOOST_TEST(!exact(window_of(31, 4, 36), 0));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(int8_is_attention_on_the_rounded_keys_and_values, T, Stored) {
  for (const KvHeads heads : {KvHeads{4, 2, 16}, {8, 1, 64}, {2, 2, 128}}) {
    KvRun<T> run(kv_config(heads), int8_options());
    BOOST_TEST(!run.cache->exact());
    run.steps(random_steps(lengths, 4));
    for (std::int64_t s = 0; s < 3; ++s) {
      run.check_outputs(s, [&](std::int64_t layer) {
        using C = compute_t<T>;
        using Real = naive_t<T>;
        return ref::attention_forward<Real, T>(run.template queries<Real>(layer, s),
                                               rounded_to_int8<T, Real>(run.template keys<C>(layer, s)),
                                               rounded_to_int8<T, Real>(run.template values<C>(layer, s)), {},
                                               {.causal = true})
            .out;
      });
    }
  }
}

// docs/blocks/kv_cache.md derives the bound. In float what attention itself rounds is far below it.
BOOST_AUTO_TEST_CASE(int8_is_as_close_to_the_exact_result_as_documented) {
  constexpr std::int64_t dim = 16, q_heads = 4, kv_heads = 2;
  KvRun<float> run(kv_config({q_heads, kv_heads, dim}), int8_options());
  run.steps(random_steps(lengths, 4));
  const double rounding = 1.0001 / 254;
  for (std::int64_t s = 0; s < 3; ++s) {
    const auto q = run.queries<double>(0, s), k = run.keys<double>(0, s), v = run.values<double>(0, s);
    const auto out = run.output<double>(0, s),
               exact = ref::attention_forward<double, double>(q, k, v, {}, {.causal = true}).out;
    const auto largest = [](const HostTensor<double>& x, std::int64_t t, std::int64_t h) {
      double most = 0;
      for (std::int64_t d = 0; d < dim; ++d) most = std::max(most, std::abs(x(0, t, h, d)));
      return most;
    };
    double worst = 0;
    for (std::int64_t i = 0; i < run.length(s); ++i)
      for (std::int64_t h = 0; h < q_heads; ++h) {
        const std::int64_t group = h / (q_heads / kv_heads);
        double key = 0, value = 0, sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          key = std::max(key, largest(k, j, group));
          value = std::max(value, largest(v, j, group));
        }
        for (std::int64_t d = 0; d < dim; ++d) sum += std::abs(q(0, i, h, d));
        const double score = sum * key * rounding / std::sqrt(static_cast<double>(dim));
        const double bound = value * (rounding + std::expm1(2 * score));
        for (std::int64_t d = 0; d < dim; ++d) {
          const double error = std::abs(out(0, i, h, d) - exact(0, i, h, d));
          BOOST_TEST(error <= bound);
          worst = std::max(worst, error);
        }
      }
    BOOST_TEST(worst > 1e-4);  // it does round
  }
}

/// The policy of heavy hitters, written down plainly: a set of tokens and their attention for each key head.
template <class T>
class HeavyHitters {
 public:
  using Real = naive_t<T>;

  HeavyHitters(const KvRun<T>& run, std::int64_t sequence, const KvCacheOptions& options,
               std::int64_t model_window)
      : m_run(run), m_sequence(sequence), m_options(options), m_window(model_window) {}

  /// What comes out of a layer when the text comes in steps of these sizes. Exact attention decides what is kept.
  HostTensor<Real> output(std::int64_t layer, const std::vector<std::int64_t>& steps) const {
    const auto q = m_run.template queries<Real>(layer, m_sequence),
               k = m_run.template keys<Real>(layer, m_sequence),
               v = m_run.template values<Real>(layer, m_sequence);
    const std::int64_t group = q.extent(2) / k.extent(2);
    HostTensor<Real> out({1, q.extent(1), q.extent(2), q.extent(3)});
    std::vector<std::map<std::int64_t, Real>> kept(static_cast<std::size_t>(k.extent(2)));
    std::int64_t begin = 0;
    for (const std::int64_t count : steps) {
      const std::int64_t end = begin + count;
      for (auto& head : kept)
        for (std::int64_t j = begin; j < end; ++j) head[j] = 0;
      ref::AttentionExtraTensors<Real> extras;
      auto& bias = extras.bias =
          HostTensor<Real>({1, q.extent(2), count, end}, -std::numeric_limits<Real>::infinity());
      for (std::int64_t h = 0; h < q.extent(2); ++h)
        for (const auto& [j, mass] : kept[h / group])
          for (std::int64_t i = 0; i < count; ++i)
            if (m_window == 0 || begin + i - j < m_window) bias(0, h, i, j) = 0;
      const auto result = ref::attention_forward<Real, T>(rows(q, begin, end), rows(k, 0, end), rows(v, 0, end),
                                                          extras, {.causal = true});
      std::copy(result.out.values().begin(), result.out.values().end(),
                out.values().begin() + begin * q.extent(2) * q.extent(3));
      for (std::int64_t h = 0; h < q.extent(2); ++h)
        for (std::int64_t i = 0; i < count; ++i)
          for (auto& [j, mass] : kept[h / group]) mass += result.probabilities(0, h, i, j);
      for (auto& head : kept) evict(head);
      begin = end;
    }
    return out;
  }

 private:
  void evict(std::map<std::int64_t, Real>& head) const {
    while (static_cast<std::int64_t>(head.size()) > m_options.budget) {
      auto least = head.begin(), it = head.begin();
      for (std::int64_t n = 0; n < static_cast<std::int64_t>(head.size()) - m_options.recent; ++n, ++it)
        if (it->second <= least->second) least = it;  // of equals the later goes
      head.erase(least);
    }
  }
  static HostTensor<Real> rows(const HostTensor<Real>& x, std::int64_t begin, std::int64_t end) {
    HostTensor<Real> part({1, end - begin, x.extent(2), x.extent(3)});
    const auto row = static_cast<std::ptrdiff_t>(x.extent(2) * x.extent(3));
    std::copy(x.values().begin() + begin * row, x.values().begin() + end * row, part.values().begin());
    return part;
  }

  const KvRun<T>& m_run;
  std::int64_t m_sequence;
  KvCacheOptions m_options;
  std::int64_t m_window;
};

BOOST_AUTO_TEST_CASE_TEMPLATE(heavy_hitters_follow_the_policy, T, Stored) {
  struct Case {
    std::int64_t budget, recent, model_window, most_step;
  };
  unsigned seed = 1;
  for (const Case c : {Case{40, 10, 0, 64}, {8, 8, 0, 17}, {30, 1, 0, 3}, {40, 10, 25, 64}, {1, 1, 0, 1}})
    for (const KvHeads heads : {KvHeads{4, 2, 16}, {8, 1, 64}, {2, 2, 10}}) {
      const KvCacheOptions options{.kind = KvCacheKind::heavy_hitters,
                                   .batch = 3,
                                   .max_step_tokens = 64,
                                   .budget = c.budget,
                                   .recent = c.recent};
      KvRun<T> run(kv_config(heads, c.model_window), options);
      BOOST_TEST(!run.cache->exact());
      const auto steps = random_steps(lengths, seed++, c.most_step);
      run.steps(steps);
      for (std::int64_t s = 0; s < 3; ++s) {
        BOOST_TEST(run.cache->stored(s) == std::min(c.budget, lengths[s]));
        std::vector<std::int64_t> own;
        for (const auto& counts : steps)
          if (counts[s] > 0) own.push_back(counts[s]);
        const HeavyHitters<T> policy(run, s, options, c.model_window);
        run.check_outputs(s, [&](std::int64_t layer) { return policy.output(layer, own); });
      }
    }
}

BOOST_AUTO_TEST_CASE(heavy_hitters_are_exact_where_they_drop_nothing) {
  const auto exact = [](std::int64_t capacity, std::int64_t budget) {
    const KvCacheOptions options{.kind = KvCacheKind::heavy_hitters, .capacity = capacity, .budget = budget};
    return KvRun<float>(kv_config({4, 2, 16}), options).cache->exact();
  };
  BOOST_TEST(exact(24, 24));
  BOOST_TEST(!exact(25, 24));
  BOOST_TEST(!exact(0, 24));
}

BOOST_AUTO_TEST_CASE(heavy_hitters_are_cut_to_nothing_or_not_at_all) {
  KvRun<float> run(
      kv_config({4, 2, 16}),
      {.kind = KvCacheKind::heavy_hitters, .batch = 2, .max_step_tokens = 40, .budget = 24, .recent = 8});
  run.step({40, 3});
  auto& cache = *run.cache;
  check_error<NotSupported>(
      [&] { cache.truncate(0, 39); },
      "kformer::KvCache::truncate: the attention of dropped queries cannot be subtracted; reset sequence 0 and "
      "feed its first 39 tokens again (heavy_hitters cache)");
  for (const auto& [length, possible] : {std::pair{-1, false}, std::pair{0, true}, std::pair{39, false},
                                         std::pair{40, true}, std::pair{41, false}})
    BOOST_TEST(cache.can_truncate(0, length) == possible, length);
  BOOST_TEST(!cache.can_truncate(1, 2));
  cache.truncate(0, 40);
  BOOST_TEST(cache.stored(0) == 24);
  cache.truncate(0, 0);
  BOOST_TEST(cache.stored(0) == 0);
  check_error<NotSupported>([&] { cache.can_truncate(2, 0); },
                            "kformer::KvCache::can_truncate: there is no sequence 2 in a batch of 2 "
                            "(heavy_hitters cache)");
}

// docs/blocks/kv_cache.md: the statistics of attention and its partial results, and what some kinds add.
BOOST_AUTO_TEST_CASE_TEMPLATE(workspaces_are_what_the_documentation_says, T, Stored) {
  constexpr std::int64_t layers = 2, batch = 3, step = 40, q_heads = 4, heads = 2, dim = 64, capacity = 208;
  constexpr std::int64_t c = sizeof(compute_t<T>), t = sizeof(T), index = 4;
  const auto up = [](std::int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const auto booked = [](KvCacheKind kind, std::int64_t sinks, std::int64_t model_window) {
    const auto ledger = Ledger::create(Ledger::Mode::count);
    const auto cache = KvCache<Exec, T>::create(kv_config({q_heads, heads, dim}, model_window),
                                                {.kind = kind,
                                                 .num_layers = layers,
                                                 .batch = batch,
                                                 .capacity = capacity,
                                                 .max_step_tokens = step,
                                                 .sinks = sinks,
                                                 .window = 20,
                                                 .budget = 24},
                                                *ledger);
    return static_cast<std::int64_t>(ledger->current(MemoryClass::workspace));
  };
  const auto of_attention = [&](std::int64_t slots) {
    std::size_t parts = 0;
    for (std::int64_t queries = 1; queries <= step; ++queries)
      parts = std::max(
          parts, attention_forward_workspace_bytes(
                     Exec(), {dtype_of<T>, 1, queries, slots, q_heads, heads, dim, dim}, {.causal = true}));
    return up(batch * step * index) + up(q_heads * step * c) + up(static_cast<std::int64_t>(parts));
  };
  constexpr std::int64_t copy = 2 * capacity * heads * dim * t;
  BOOST_TEST(booked(KvCacheKind::contiguous, 0, 0) == of_attention(capacity));
  BOOST_TEST(booked(KvCacheKind::paged, 0, 0) == of_attention(capacity) + copy);
  BOOST_TEST(booked(KvCacheKind::int8, 0, 0) == of_attention(capacity) + copy);
  constexpr std::int64_t window = 20 - 1 + 16 + step;
  BOOST_TEST(booked(KvCacheKind::window, 0, 0) == of_attention(window) + up(batch * 19 * index));
  BOOST_TEST(booked(KvCacheKind::window, 3, 0) == of_attention(window + 3) + up(batch * (window + 3) * index) +
                                                      up(batch * 22 * index) + up(step * (window + 3) * t));
  constexpr std::int64_t slots = 24 + step;
  const std::int64_t hitters = of_attention(slots) + up(batch * step * index) + up(layers * heads * 24 * index);
  BOOST_TEST(booked(KvCacheKind::heavy_hitters, 0, 0) == hitters);
  BOOST_TEST(booked(KvCacheKind::heavy_hitters, 0, 100) == hitters + up(q_heads * step * slots * t));
}

BOOST_AUTO_TEST_CASE(heavy_hitters_keep_half_for_the_last_tokens_unless_told) {
  const auto recent = [](std::int64_t budget) {
    const KvCacheOptions options{.kind = KvCacheKind::heavy_hitters, .budget = budget};
    return KvRun<float>(kv_config({4, 2, 16}), options).cache->options().recent;
  };
  BOOST_TEST(recent(40) == 20);
  BOOST_TEST(recent(1) == 1);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
