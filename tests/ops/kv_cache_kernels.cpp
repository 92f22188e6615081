// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kformer/ops/kv_cache.hpp"
#include "kformer/ops/kv_cache_eviction.hpp"
#include "kformer/ops/kv_cache_int8.hpp"
#include "ops/kv_cache/reference.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"

namespace kformer::Testing {
namespace {

namespace ref = kformer::Impl::reference;
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Exactly the same numbers; NaN equals NaN.
template <class T, class Real>
void check_same(const char* what, const TestTensor<Exec, T>& got, const HostTensor<Real>& expected) {
  const auto values = got.template read<Real>().values();
  BOOST_REQUIRE(values.size() == expected.values().size());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (difference(values[i], expected.values()[i]) != 0) {
      BOOST_ERROR(what << '[' << i << "]: got " << values[i] << ", expected " << expected.values()[i]);
      return;
    }
}

struct RowShape {
  std::int64_t rows, slots, heads, dim, v_dim;
};
const std::vector<RowShape> row_shapes{{1, 1, 1, 1, 1},     {5, 9, 3, 8, 8}, {7, 40, 2, 33, 5},
                                       {64, 64, 8, 64, 64}, {0, 4, 2, 8, 8}, {3, 0, 2, 8, 8},
                                       {3, 4, 0, 8, 8},     {3, 4, 2, 0, 8}, {17, 17, 1, 15, 16}};

/// Different slots in any order, some of them outside the cache.
std::vector<std::int32_t> some_slots(std::int64_t rows, std::int64_t slots, std::mt19937& generator) {
  std::vector<std::int32_t> all;
  for (std::int64_t n = -3; n < slots + 3; ++n) all.push_back(static_cast<std::int32_t>(n));
  all.push_back(std::numeric_limits<std::int32_t>::min());
  all.push_back(std::numeric_limits<std::int32_t>::max());
  std::shuffle(all.begin(), all.end(), generator);
  all.resize(static_cast<std::size_t>(rows), -1);
  return all;
}

template <class U>
using Tensor = TestTensor<Exec, U>;

}  // namespace

BOOST_AUTO_TEST_SUITE(kv_cache_kernels)

BOOST_AUTO_TEST_CASE_TEMPLATE(append_puts_rows_into_slots, T, Scalars) {
  std::mt19937 generator(1);
  for (const auto& s : row_shapes)
    for (const auto rows : {Rows::strided, Rows::packed}) {
      Tensor<T> k({s.rows, s.heads, s.dim}, rows), v({s.rows, s.heads, s.v_dim}, rows);
      Tensor<T> k_cache({s.slots, s.heads, s.dim}, rows), v_cache({s.slots, s.heads, s.v_dim}, rows);
      for (Tensor<T>* x : {&k, &v, &k_cache, &v_cache}) x->random(generator);
      const auto slots = some_slots(s.rows, s.slots, generator);
      Tensor<std::int32_t> slot({s.rows});
      slot.fill([&](std::size_t i) { return slots[i]; });
      const auto expected = [&](const Tensor<T>& x, const Tensor<T>& cache) {
        return ref::kv_append(x.template read<double>(), slot.template read<double>(),
                              cache.template read<double>());
      };
      const auto k_expected = expected(k, k_cache), v_expected = expected(v, v_cache);
      test_every_kernel(Impl::KvAppend{k.ref(), v.ref(), slot.ref(), k_cache.ref(), v_cache.ref()},
                        {&k_cache, &v_cache}, [&](const std::string&) {
                          check_same("k_cache", k_cache, k_expected);
                          check_same("v_cache", v_cache, v_expected);
                        });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gather_reads_pages_in_their_order, T, Scalars) {
  std::mt19937 generator(2);
  struct Case {
    std::int64_t pages, page_tokens, tokens;
  };
  for (const Case c : {Case{1, 1, 1}, {9, 16, 75}, {7, 5, 33}, {4, 16, 0}, {0, 4, 7}, {3, 100, 250}})
    for (const std::int64_t heads : {1, 3}) {
      const std::int64_t dim = 9, v_dim = heads == 1 ? 9 : 4,
                         listed = (c.tokens + c.page_tokens - 1) / c.page_tokens;
      Tensor<T> k_cache({c.pages * c.page_tokens, heads, dim}),
          v_cache({c.pages * c.page_tokens, heads, v_dim});
      k_cache.random(generator);
      v_cache.random(generator);
      Tensor<T> k({c.tokens, heads, dim}), v({c.tokens, heads, v_dim});
      Tensor<std::int32_t> pages({listed + 1});
      // The same page may come twice; one is outside the cache at either end.
      std::uniform_int_distribution<std::int32_t> any(-1, static_cast<std::int32_t>(c.pages));
      pages.fill([&](std::size_t) { return any(generator); });
      const auto expected = [&](const Tensor<T>& cache) {
        return ref::kv_gather(cache.template read<double>(), pages.template read<double>(), c.page_tokens,
                              c.tokens);
      };
      const auto k_expected = expected(k_cache), v_expected = expected(v_cache);
      test_every_kernel(
          Impl::KvGather{k_cache.ref(), v_cache.ref(), pages.ref(), k.ref(), v.ref(), c.page_tokens}, {&k, &v},
          [&](const std::string&) {
            check_same("k", k, k_expected);
            check_same("v", v, v_expected);
          });
    }
}

using Copied = std::tuple<float, bf16, f16, double, std::int32_t, std::uint8_t>;

template <class T>
void fill_any(Tensor<T>& x, std::mt19937& generator) {
  std::uniform_int_distribution<int> any(0, 100);
  x.fill([&](std::size_t) { return static_cast<float>(any(generator)); });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(copy_takes_any_type_and_broadcasts, T, Copied) {
  std::mt19937 generator(3);
  for (const std::vector<std::int64_t>& extents : std::vector<std::vector<std::int64_t>>{
           {1, 1, 1, 1}, {4, 5, 3, 8}, {2, 17, 1, 33}, {0, 3, 2, 4}, {3, 4, 2, 0}}) {
    Tensor<T> from(extents), to(extents);
    fill_any(from, generator);
    const auto expected = from.template read<double>();
    test_every_kernel(Impl::KvCopy{from.ref(), to.ref()}, {&to},
                      [&](const std::string&) { check_same("to", to, expected); });
    TensorRef broadcast = from.ref();
    broadcast.stride[0] = broadcast.stride[2] = 0;
    HostTensor<double> repeated = expected;
    for (std::int64_t a = 0; a < extents[0]; ++a)
      for (std::int64_t s = 0; s < extents[1]; ++s)
        for (std::int64_t h = 0; h < extents[2]; ++h)
          for (std::int64_t d = 0; d < extents[3]; ++d) repeated(a, s, h, d) = expected(0, s, 0, d);
    test_every_kernel(Impl::KvCopy{broadcast, to.ref()}, {&to},
                      [&](const std::string&) { check_same("to", to, repeated); });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(compact_closes_gaps_in_place, T, Copied) {
  std::mt19937 generator(4);
  struct Case {
    std::int64_t arrays, slots, heads, dim, kept_arrays, kept_heads, count;
  };
  for (const Case c : {Case{1, 1, 1, 1, 1, 1, 1},
                       {3, 40, 2, 9, 3, 2, 17},
                       {3, 40, 2, 9, 1, 1, 17},
                       {2, 113, 4, 1, 2, 4, 75},
                       {3, 40, 2, 8, 1, 2, 40},
                       {3, 40, 2, 8, 3, 1, 0},
                       {0, 4, 2, 8, 1, 1, 3},
                       {2, 4, 2, 0, 2, 2, 3}})
    for (const auto rows : {Rows::strided, Rows::packed}) {
      Tensor<T> cache({c.arrays, c.slots, c.heads, c.dim}, rows);
      fill_any(cache, generator);
      Tensor<std::int32_t> kept({c.kept_arrays, c.kept_heads, c.count});
      std::vector<std::int32_t> lists;
      for (std::int64_t n = 0; n < c.kept_arrays * c.kept_heads; ++n) {
        std::vector<std::int32_t> all(static_cast<std::size_t>(c.slots));
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
        std::shuffle(all.begin() + c.count / 3, all.end(), generator);
        all.resize(static_cast<std::size_t>(c.count));
        std::sort(all.begin(), all.end());
        lists.insert(lists.end(), all.begin(), all.end());
      }
      if (c.count > 9 && c.count < c.slots) lists.back() = std::numeric_limits<std::int32_t>::max();
      kept.fill([&](std::size_t i) { return lists[i]; });
      const auto expected = ref::kv_compact(cache.template read<double>(), kept.template read<double>());
      test_every_kernel(Impl::KvCompact{cache.ref(), kept.ref()}, {&cache},
                        [&](const std::string&) { check_same("cache", cache, expected); });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(int8_codes_are_those_of_the_formula, T, Scalars) {
  using C = compute_t<T>;
  std::mt19937 generator(5);
  for (const auto& s : row_shapes) {
    Tensor<T> k({s.rows, s.heads, s.dim}), v({s.rows, s.heads, s.v_dim});
    k.random(generator);
    const double specials[] = {0, 1, nan, -infinity, 3, 1e-3, -1, 0.5};
    // Every other head has NaN without infinity, which would hide that NaN is lost.
    v.fill([&](std::size_t i) {
      const double x = specials[(i + i / 7) % 8];
      return static_cast<C>(i / static_cast<std::size_t>(s.v_dim) % 2 == 1 && std::isinf(x) ? 2 : x);
    });
    Tensor<std::uint8_t> k_codes({s.slots, s.heads, s.dim}), v_codes({s.slots, s.heads, s.v_dim});
    Tensor<C> k_scale({s.slots, s.heads}), v_scale({s.slots, s.heads});
    Tensor<std::int32_t> slot({s.rows});
    const auto slots = some_slots(s.rows, s.slots, generator);
    slot.fill([&](std::size_t i) { return slots[i]; });
    const auto expected = [&](const Tensor<T>& x, const Tensor<std::uint8_t>& codes, const Tensor<C>& scale) {
      return ref::kv_append_int8<C>(x.template read<C>(), slot.template read<C>(),
                                    {codes.template read<C>(), scale.template read<C>()});
    };
    const auto k_expected = expected(k, k_codes, k_scale), v_expected = expected(v, v_codes, v_scale);
    test_every_kernel(
        Impl::KvAppendInt8{
            k.ref(), v.ref(), slot.ref(), {k_codes.ref(), k_scale.ref()}, {v_codes.ref(), v_scale.ref()}},
        {&k_codes, &k_scale, &v_codes, &v_scale}, [&](const std::string&) {
          check_same("k_codes", k_codes, k_expected.codes);
          check_same("k_scale", k_scale, k_expected.scale);
          check_same("v_codes", v_codes, v_expected.codes);
          check_same("v_scale", v_scale, v_expected.scale);
        });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(int8_gives_back_what_was_appended_up_to_half_a_scale, T, Scalars) {
  using C = compute_t<T>;
  std::mt19937 generator(6);
  constexpr std::int64_t rows = 33, heads = 3, dim = 17;
  // The quotient and the product are each rounded, at most 127 scales large.
  constexpr double half = 0.5 + 127 * static_cast<double>(std::numeric_limits<C>::epsilon());
  Tensor<T> x({rows, heads, dim}), k({rows, heads, dim}), v({rows, heads, dim});
  x.random(generator, 3.0);
  Tensor<std::uint8_t> codes({rows, heads, dim}), v_codes({rows, heads, dim});
  Tensor<C> scale({rows, heads}), v_scale({rows, heads});
  Tensor<std::int32_t> slots({rows});
  slots.fill([](std::size_t i) { return static_cast<std::int32_t>(i); });
  kv_append_int8(Exec(), KvAppendInt8Operands{.k = x.template view<3>(),
                                              .v = x.template view<3>(),
                                              .slots = slots.template view<1>(),
                                              .k_codes = codes.template view<3>(),
                                              .k_scale = scale.template view<2>(),
                                              .v_codes = v_codes.template view<3>(),
                                              .v_scale = v_scale.template view<2>()});
  Exec().fence("kformer::Testing::kv_cache_kernels");
  const auto appended = x.template read<double>(), scales = scale.template read<double>();
  const auto code = codes.template read<double>();
  // The gather is tested from codes that nothing resets.
  Tensor<std::uint8_t> kept({rows, heads, dim});
  Tensor<C> kept_scale({rows, heads});
  kept.fill([&](std::size_t i) { return code.values()[i]; });
  kept_scale.fill([&](std::size_t i) { return scales.values()[i]; });
  const Impl::KvCodes all{kept.ref(), kept_scale.ref()};
  const auto expected = ref::kv_gather_int8<C>({kept.template read<C>(), kept_scale.template read<C>()});
  test_every_kernel(Impl::KvGatherInt8{all, all, k.ref(), v.ref()}, {&k, &v}, [&](const std::string&) {
    const auto got = k.template read<double>();
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t d = 0; d < dim; ++d) {
          const auto exact = static_cast<double>(expected(r, h, d));
          BOOST_TEST(got(r, h, d) == static_cast<double>(Impl::stored<T>(static_cast<C>(exact))));
          BOOST_TEST(std::abs(exact - appended(r, h, d)) <= scales(r, h) * half);
        }
    BOOST_TEST((v.template read<double>().values() == got.values()));
  });
}

struct MassCase {
  std::int64_t q_len, kv_len, q_heads, kv_heads, dim;
  AttentionOptions options;
};

template <class T>
void check_mass(const MassCase& c, std::mt19937& generator) {
  using C = compute_t<T>;
  Tensor<T> q({c.q_len, c.q_heads, c.dim}), k({c.kv_len, c.kv_heads, c.dim});
  q.random(generator, 0.5);
  k.random(generator, 0.5);
  Tensor<C> lse({c.q_heads, c.q_len}), mass({c.kv_heads, c.kv_len});
  lse.random(generator, 1.0, 3.0);
  // A query that saw nothing gives nothing. The last q_len masses are replaced, NaN included.
  const auto drawn = lse.template read<double>().values();
  lse.fill([&](std::size_t i) { return static_cast<C>(i % 11 == 5 ? -infinity : drawn[i]); });
  mass.fill([&](std::size_t i) {
    const bool old = static_cast<std::int64_t>(i) % c.kv_len < c.kv_len - c.q_len;
    return static_cast<C>(old ? 0.25 * static_cast<double>(i % 5) : nan);
  });
  Tensor<std::int32_t> positions({c.kv_heads, c.kv_len});
  positions.fill([&](std::size_t i) { return static_cast<std::int32_t>(2 * i + i % 2); });
  using Real = naive_t<C>;
  const auto naive = ref::kv_attention_mass<Real, C>(q.template read<Real>(), k.template read<Real>(),
                                                     lse.template read<Real>(), positions.template read<Real>(),
                                                     mass.template read<Real>(), c.options);
  test_every_kernel(Impl::KvAttentionMass{q.ref(), k.ref(), lse.ref(), positions.ref(), mass.ref(), c.options},
                    {&mass}, [&](const std::string&) { check_close("mass", mass, naive); });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(attention_mass_matches_the_oracle, T, Scalars) {
  std::mt19937 generator(7);
  for (const MassCase& c : {MassCase{1, 1, 1, 1, 1, {}},
                            {1, 113, 8, 2, 64, {}},
                            {17, 75, 4, 1, 33, {.scale = 0.7}},
                            {33, 33, 2, 2, 15, {.softcap = 1.5}},
                            {5, 60, 4, 2, 8, {.window = 9}},
                            {0, 7, 2, 1, 8, {}},
                            {3, 7, 2, 1, 0, {}}})
    check_mass<T>(c, generator);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const std::int64_t kv_len = draw.any(1, 80), kv_heads = draw.any(1, 3);
    MassCase c{draw.any(1, kv_len), kv_len, kv_heads * draw.any(1, 3), kv_heads, draw.any(1, 64), {}};
    if (draw.one_in(4)) c.options.scale = 0.7;
    if (draw.one_in(4)) c.options.softcap = 1.5;
    if (draw.one_in(4)) c.options.window = draw.any(1, 20);
    std::mt19937 generator(draw.seed());
    check_mass<T>(c, generator);
  });
}

using Masses = std::tuple<float, double>;
BOOST_AUTO_TEST_CASE_TEMPLATE(heavy_hitters_are_the_largest_masses, C, Masses) {
  std::mt19937 generator(8);
  struct Case {
    std::int64_t arrays, heads, tokens, count, recent;
  };
  for (const Case c : {Case{1, 1, 1, 1, 1},
                       {3, 2, 113, 40, 10},
                       {3, 2, 113, 113, 10},
                       {1, 4, 75, 20, 20},
                       {2, 1, 75, 20, 0},
                       {2, 2, 9, 0, 0},
                       {0, 2, 9, 3, 1}})
    for (const int distinct : {1, 4, 1000}) {  // many ties, few ties
      Tensor<C> mass({c.arrays, c.heads, c.tokens});
      mass.fill([&](std::size_t i) {
        if (distinct == 1000 && i % 37 == 5) return static_cast<C>(nan);
        if (distinct == 1000 && i % 41 == 7) return static_cast<C>(infinity);
        if (i % 29 == 3) return -C(0);
        return static_cast<C>(generator() % distinct) / C(7);
      });
      Tensor<std::int32_t> kept({c.arrays, c.heads, c.count});
      const auto expected = ref::kv_heavy_hitters(mass.template read<double>(), c.recent, c.count);
      test_every_kernel(Impl::KvHeavyHitters{mass.ref(), kept.ref(), c.recent}, {&kept},
                        [&](const std::string&) { check_same("kept", kept, expected); });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(masks_hide_by_position, T, Scalars) {
  struct Case {
    std::int64_t lists, heads, q_len, kv_len;
    KvMaskOptions options;
  };
  for (const Case c : {Case{1, 1, 1, 1, {}},
                       {1, 1, 5, 33, {.window = 7, .sinks = 4}},
                       {2, 8, 5, 33, {.window = 7, .sinks = 4, .model_window = 20}},
                       {2, 2, 33, 33, {.model_window = 3}},
                       {3, 3, 0, 17, {.window = 1}},
                       {1, 0, 3, 17, {.window = 1}}}) {
    Tensor<std::int32_t> positions({c.lists, c.kv_len});
    positions.fill([&](std::size_t i) { return static_cast<std::int32_t>(i % c.kv_len * 2 + i / c.kv_len); });
    Tensor<T> bias({c.heads, c.q_len, c.kv_len});
    const auto expected = ref::kv_mask(positions.template read<double>(), c.heads, c.q_len, c.options);
    test_every_kernel(Impl::KvMask{positions.ref(), bias.ref(), c.options}, {&bias},
                      [&](const std::string&) { check_same("bias", bias, expected); });
  }
}

BOOST_AUTO_TEST_CASE(references_by_hand) {
  HostTensor<double> cache({2, 3, 1, 1}), kept({1, 1, 2}), mass({1, 1, 5});
  for (int i = 0; i < 6; ++i) cache.values()[i] = i;
  kept.values() = {1, 2};
  BOOST_TEST(ref::kv_compact(cache, kept).values() == (std::vector<double>{1, 2, 2, 4, 5, 5}));
  mass.values() = {3, 1, 3, 2, 0};
  BOOST_TEST(ref::kv_heavy_hitters(mass, 1, 3).values() == (std::vector<double>{0, 2, 4}));
  BOOST_TEST(ref::kv_heavy_hitters(mass, 1, 2).values() == (std::vector<double>{0, 4}));
  HostTensor<double> x({1, 1, 4}), slots({1}), positions({1, 4});
  x.values() = {127, -63.4, 0, 1.5};
  const auto codes =
      ref::kv_append_int8<double>(x, slots, {HostTensor<double>({1, 1, 4}), HostTensor<double>({1, 1})});
  BOOST_TEST(codes.codes.values() == (std::vector<double>{255, 65, 128, 130}));
  BOOST_TEST(codes.scale.values() == (std::vector<double>{1}));
  positions.values() = {0, 1, 5, 6};
  BOOST_TEST(ref::kv_mask(positions, 1, 1, {.window = 2, .sinks = 1}).values() ==
             (std::vector<double>{0, -infinity, 0, 0}));
  // Two queries of one head; scores are 0, so that each pair weighs exp(−lse).
  HostTensor<double> q({2, 1, 1}), k({4, 1, 1}), lse({1, 2}), sums({1, 4}, 10.0);
  lse.values() = {std::log(4.0), std::log(2.0)};
  const auto masses = ref::kv_attention_mass<double, double>(q, k, lse, positions, sums, {}).values();
  const double wanted[] = {10.75, 10.75, 0.75, 0.5};
  for (int j = 0; j < 4; ++j) BOOST_TEST(std::abs(masses[j] - wanted[j]) < 1e-15);
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  Tensor<float> rows({3, 2, 8}), cache({9, 2, 8}), narrow({9, 2, 7}), lse({4, 3}), mass({2, 9});
  Tensor<std::int32_t> slots({3}), few({2}), positions({2, 9}), kept({1, 2, 3});
  Tensor<float> arrays({2, 9, 2, 8}), others({2, 9, 2, 7}), masses({1, 2, 9}), bias({4, 10, 9});
  Tensor<std::uint8_t> codes({9, 2, 8});
  Tensor<float> scale({9, 3}), q({3, 4, 8});
  const auto append = [&](const auto& k, const auto& where, const auto& to) {
    kv_append(Exec(), k.template view<3>(), rows.view<3>(), where.template view<1>(), to.template view<3>(),
              cache.view<3>());
  };
  check_error<DimensionMismatch>(
      [&] { append(rows, few, cache); },
      "kformer::kv_append: extents do not match: k[3,2,8] v[3,2,8] slots[2] k_cache[9,2,8] v_cache[9,2,8]; "
      "expected k, v and slots to have the same rows");
  check_error<DimensionMismatch>(
      [&] { append(rows, slots, narrow); },
      "kformer::kv_append: extents do not match: k[3,2,8] v[3,2,8] slots[3] k_cache[9,2,7] v_cache[9,2,8]; "
      "expected rows of the caches to be like those of k and v, with the same heads");
  check_error<NotSupported>(
      [&] {
        kv_gather(Exec(), cache.view<3>(), cache.view<3>(), few.view<1>(), rows.view<3>(), rows.view<3>(), 0);
      },
      "kformer::kv_gather: page_tokens must be positive, got 0");
  check_error<DimensionMismatch>(
      [&] {
        kv_gather(Exec(), cache.view<3>(), cache.view<3>(), few.view<1>(), rows.view<3>(), rows.view<3>(), 1);
      },
      "kformer::kv_gather: extents do not match: k_cache[9,2,8] v_cache[9,2,8] pages[2] k[3,2,8] v[3,2,8]; "
      "expected k and v to have the same tokens, at most 1 for a page");
  check_error<DimensionMismatch>(
      [&] { kv_copy(Exec(), arrays.view<4>(), others.view<4>()); },
      "kformer::kv_copy: extents do not match: from[2,9,2,8] to[2,9,2,7]; expected to to have the extents of "
      "from");
  check_error<DimensionMismatch>(
      [&] { Impl::KvCompact{arrays.ref(), masses.ref()}.check(); },
      "kformer::kv_compact: kept is stored as f32, expected i32: cache[2,9,2,8] kept[1,2,9]");
  check_error<DimensionMismatch>(
      [&] {
        kv_append_int8(Exec(), KvAppendInt8Operands{.k = rows.view<3>(),
                                                    .v = rows.view<3>(),
                                                    .slots = slots.view<1>(),
                                                    .k_codes = codes.view<3>(),
                                                    .k_scale = scale.view<2>(),
                                                    .v_codes = codes.view<3>(),
                                                    .v_scale = scale.view<2>()});
      },
      "kformer::kv_append_int8: extents do not match: k[3,2,8] v[3,2,8] slots[3] k_codes[9,2,8] k_scale[9,3] "
      "v_codes[9,2,8] v_scale[9,3]; expected rows of codes to be like those of k and v, with a scale for each "
      "slot and head");
  check_error<NotSupported>(
      [&] {
        kv_attention_mass(Exec(), q.view<3>(), cache.view<3>(), lse.view<2>(), positions.view<2>(),
                          mass.view<2>(), {.softcap = -1});
      },
      "kformer::kv_attention_mass: softcap must be finite and not negative, got -1.000000");
  check_error<NotSupported>(
      [&] { kv_heavy_hitters(Exec(), masses.view<3>(), kept.view<3>(), 4); },
      "kformer::kv_heavy_hitters: recent must lie between 0 and the 3 kept tokens, got 4");
  check_error<DimensionMismatch>(
      [&] { kv_mask(Exec(), positions.view<2>(), bias.view<3>(), {}); },
      "kformer::kv_mask: extents do not match: positions[2,9] bias[4,10,9]; expected bias[heads,at most "
      "kv_len,kv_len] for positions[kv_heads,kv_len], with kv_heads dividing heads");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
