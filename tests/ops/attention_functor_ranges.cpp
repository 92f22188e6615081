// SPDX-License-Identifier: MIT
// Functors that return which keys queries may see: skipping keys must not change anything else.
#include "ops/functor_cases.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {

/// Sees keys at most `reach` away; query `i` has position `i + shift`.
struct Near {
  std::int64_t reach, shift;

  KOKKOS_FUNCTION bool operator()(AttentionIndex at) const {
    return Kokkos::abs(at.query + shift - at.key) <= reach;
  }
};

/// The same in both ways.
struct NearByBoth : Near {
  KOKKOS_FUNCTION KeyRange keys(AttentionRows rows) const {
    return {rows.first + shift - reach, rows.end + shift + reach};
  }
};

/// The same without a mask.
struct NearByRange {
  std::int64_t reach, shift;

  KOKKOS_FUNCTION KeyRange keys(AttentionRows rows) const {
    return {rows.first + shift - reach, rows.end + shift + reach};
  }
};

/// Counts the pairs it is asked about.
struct CountedNear : NearByBoth {
  Kokkos::View<std::int64_t, Exec::memory_space> calls;

  KOKKOS_FUNCTION bool operator()(AttentionIndex at) const {
    Kokkos::atomic_inc(&calls());
    return NearByBoth::operator()(at);
  }
};

/// Odd queries see no key.
struct EvenRows {
  KOKKOS_FUNCTION KeyRange keys(AttentionRows rows) const {
    const bool only_odd = rows.first + 1 == rows.end && rows.first % 2 == 1;
    return only_odd ? KeyRange{7, 3} : KeyRange{INT64_MIN, INT64_MAX};
  }
};

/// No query sees any key.
struct NoKeys {
  KOKKOS_FUNCTION KeyRange keys(AttentionRows) const { return {0, 0}; }
};

/// A range with a score.
struct NearWithDistance : NearByRange {
  template <class C>
  KOKKOS_FUNCTION C operator()(C score, AttentionIndex at) const {
    return score - static_cast<C>(Kokkos::abs(at.query + shift - at.key) % 4) / 4;
  }
  template <class C>
  KOKKOS_FUNCTION C derivative(C, AttentionIndex) const {
    return C(1);
  }
};

BOOST_AUTO_TEST_SUITE(attention_functor_ranges)

using Case = AttentionCase;

// Lengths that are and are not multiples of tiles, shared heads, and sequences of which whole tiles are
// skipped.
const std::vector<Case> cases{
    Case{1, 1, 1, 1, 1, 8, 8},      Case{2, 75, 113, 4, 2, 8, 16},
    Case{1, 113, 75, 2, 1, 24, 8},  Case{2, 113, 113, 4, 1, 8, 16}.causal(),
    Case{1, 1, 300, 2, 2, 8, 8},    Case{1, 300, 1, 2, 2, 8, 8},
    Case{1, 257, 300, 4, 2, 8, 16}, Case{1, 300, 300, 3, 3, 16, 16}.causal().window(25)};

template <class T>
std::vector<Output*> outputs_of(AttentionTensors<T>& t) {
  return {&t.out, &t.lse, &t.dq, &t.dk, &t.dv};
}

/// The bits of all results, from fresh outputs.
template <class T, class F>
std::vector<std::vector<unsigned char>> bits_of(AttentionTensors<T>& t, const F& functor) {
  for (Output* x : outputs_of(t)) x->reset();
  run_forward(t, functor);
  run_backward(t, functor);
  std::vector<std::vector<unsigned char>> bits;
  for (Output* x : outputs_of(t)) {
    bits.push_back(x->bits());
    BOOST_TEST(x->guards_intact());
  }
  return bits;
}

template <class T>
void check_same_bits(AttentionTensors<T>& t, const auto& functor, const auto& other) {
  const auto expected = bits_of(t, other), got = bits_of(t, functor);
  for (std::size_t n = 0; n < got.size(); ++n) BOOST_TEST((got[n] == expected[n]), "output " << n);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_range_is_the_mask_that_says_the_same, T, Scalars) {
  for (const Case& c : cases) {
    AttentionTensors<T> t(c);
    const Near mask{20, c.kv_len - c.q_len};
    const ForcedKernels portable("attention:kokkos");
    BOOST_TEST_CONTEXT(c.q_len << " queries, " << c.kv_len << " keys") {
      check_same_bits(t, NearByBoth{mask}, mask);
      check_same_bits(t, NearByRange{mask.reach, mask.shift}, mask);
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ranges_match_a_bias_that_says_the_same, T, Scalars) {
  for (const Case& c : cases) {
    const std::int64_t shift = c.kv_len - c.q_len;
    const auto near = [&](std::int64_t i, std::int64_t j) {
      return std::abs(i + shift - j) <= 20 ? 0 : -std::numeric_limits<double>::infinity();
    };
    const auto distance = [&](std::int64_t i, std::int64_t j) {
      return near(i, j) - static_cast<double>(std::abs(i + shift - j) % 4) / 4;
    };
    BOOST_TEST_CONTEXT(c.q_len << " queries, " << c.kv_len << " keys") {
      check_against_bias<T>(c, NearByBoth{{20, shift}}, near);
      check_against_bias<T>(c, NearByRange{20, shift}, near);
      check_against_bias<T>(c, NearWithDistance{{20, shift}}, distance);
    }
  }
}

BOOST_AUTO_TEST_CASE(ranges_and_extras_work_together) {
  const auto near = [](std::int64_t i, std::int64_t j) {
    return std::abs(i - j) <= 20 ? 0 : -std::numeric_limits<double>::infinity();
  };
  const Case packed = Case{1, 0, 0, 4, 2, 8, 16}.packed({130, 1, 70}, {130, 1, 70});
  const Case several{2, 150, 170, 4, 2, 8, 16};
  for (const Case& c : {packed, packed.causal().sinks(), packed.alibi().softcap(2), several.sinks(),
                        several.bias(Bias::full), several.blocks(16, 32), several.alibi().blocks(64, 64)}) {
    check_against_bias<float>(c, NearByBoth{{20, 0}}, near);
    check_against_bias<double>(c, NearByRange{20, 0}, near);
  }
}

BOOST_AUTO_TEST_CASE(a_mask_is_asked_only_within_the_range) {
  for (const Case& c : cases) {
    const AttentionTensors<float> t(c);
    const Impl::Visibility visible{c.q_len, c.kv_len, c.options.window, c.options.causal};
    const std::int64_t shift = c.kv_len - c.q_len;
    std::int64_t pairs = 0;
    for (std::int64_t i = 0; i < c.q_len; ++i)
      for (std::int64_t j = 0; j < c.kv_len; ++j) pairs += visible.sees(i, j) && std::abs(i + shift - j) <= 20;
    with_each_kernel([&] {
      const Kokkos::View<std::int64_t, Exec::memory_space> calls("calls");
      run_forward(t, CountedNear{{{20, shift}}, calls});
      std::int64_t asked = 0;
      Kokkos::deep_copy(asked, calls);
      BOOST_TEST(asked == pairs * c.batch * c.q_heads);
    });
  }
}

BOOST_AUTO_TEST_CASE(a_query_without_keys_has_no_output) {
  for (const Case& c : {Case{1, 75, 113, 4, 2, 8, 16}, Case{1, 300, 300, 2, 1, 8, 8}.causal()}) {
    const AttentionTensors<float> t(c);
    with_each_kernel([&] {
      run_forward(t, EvenRows{});
      run_backward(t, EvenRows{});
      const auto out = t.out.read<double>(), lse = t.lse.read<double>(), dq = t.dq.read<double>();
      for (std::int64_t i = 0; i < c.q_len; ++i)
        for (std::int64_t h = 0; h < c.q_heads; ++h) {
          BOOST_TEST((out(0, i, h, 0) == 0) == (i % 2 == 1), "query " << i);
          BOOST_TEST((lse(0, h, i) == -std::numeric_limits<double>::infinity()) == (i % 2 == 1));
          if (i % 2 == 1) BOOST_TEST(dq(0, i, h, 0) == 0);
        }
      run_forward(t, NoKeys{});
      run_backward(t, NoKeys{});
      const auto all_are = [](const auto& x, double expected) {
        const auto values = x.template read<double>();
        return std::ranges::all_of(values.values(), [=](double value) { return value == expected; });
      };
      for (const auto* x : {&t.out, &t.dq, &t.dk, &t.dv}) BOOST_TEST(all_are(*x, 0));
      BOOST_TEST(all_are(t.lse, -std::numeric_limits<double>::infinity()));
    });
  }
}

BOOST_AUTO_TEST_CASE(what_a_range_hides_does_not_leak) {
  // The last 30 tokens are NaN: queries that are further away must not notice. A tile with NaN is summed in
  // another order.
  const Case c{1, 150, 150, 2, 1, 8, 8};
  AttentionTensors<float> t(c), clean(c);
  const auto poison = [](TestTensor<Exec, float>& x) {
    const auto values = x.read<float>();
    const auto row = static_cast<std::size_t>(values.extent(2) * values.extent(3));
    x.fill([&](std::size_t i) { return i / row >= 120 ? std::nanf("") : values.values()[i]; });
  };
  for (auto* x : {&t.q, &t.k, &t.v, &t.dout}) poison(*x);
  const NearByRange functor{10, 0};
  with_each_kernel([&] {
    for (auto* x : {&t, &clean}) {
      run_forward(*x, functor);
      run_backward(*x, functor);
    }
    const auto compare = [](const TestTensor<Exec, float>& got, const TestTensor<Exec, float>& expected) {
      const auto a = got.read<double>(), b = expected.read<double>();
      for (std::int64_t i = 0; i < 100; ++i)
        BOOST_TEST(std::abs(a(0, i, 0, 0) - b(0, i, 0, 0)) <= 1e-5, "token " << i);
      BOOST_TEST(std::isnan(a(0, 149, 0, 0)));
    };
    compare(t.out, clean.out);
    compare(t.dq, clean.dq);
    compare(t.dk, clean.dk);
    compare(t.dv, clean.dv);
  });
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
