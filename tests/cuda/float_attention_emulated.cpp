// SPDX-License-Identifier: MIT
// Attention of floats by products of TF32 on emulated CUDA blocks, whose tensor cores cut off what they add, against the
// reference by the rule.
#include "cuda/nan_of_forward.hpp"
#include "cuda/wrong_starts.hpp"
#include "kformer/ops/impl/flash_forward.hpp"
#include "ops/attention/cuda/entries.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(float_attention_emulated)

using Case = AttentionCase;
using Entry = Impl::cuda::FloatForwardEntry<Exec>;
constexpr auto kernel = Entry::entry();

BOOST_AUTO_TEST_CASE(shapes_and_positions) {
  for (const Case& c : {
           Case{16, 1, 1, 1, 1, 8, 8},
           Case{4, 75, 75, 4, 1, 8, 40}.causal(),
           Case{1, 113, 113, 3, 3, 16, 12}.window(20),
           Case{1, 65, 97, 2, 1, 64, 80}.causal().window(33),
           Case{1, 113, 75, 1, 1, 80, 64}.causal(),
           Case{1, 20, 9, 8, 1, 4, 4}.window(3),
           Case{2, 1, 113, 4, 1, 64, 64},
           Case{1, 260, 260, 2, 1, 16, 16}.causal(),
           Case{1, 130, 260, 2, 2, 16, 16}.causal().window(70),
           Case{1, 75, 113, 2, 1, 8, 8}.causal().spread(5),
           Case{1, 75, 113, 2, 1, 100, 128}.causal().spread(3),
           Case{1, 33, 900, 1, 1, 64, 64},
           Case{1, 20, 700, 1, 1, 128, 128}.scale(0.3),
           Case{1, 5, 0, 2, 1, 8, 8},
           Case{1, 0, 5, 2, 1, 8, 8}.causal(),
           Case{0, 5, 5, 2, 1, 8, 8},
           Case{1, 130, 70, 2, 1, 64, 64}.softcap(2),
           Case{1, 150, 200, 2, 1, 64, 64}.packed({1, 75, 0, 74}, {33, 100, 7, 60}).causal(),
           Case{1, 1, 1, 2, 1, 128, 96}.packed({70, 3, 65}, {70, 40, 65}).causal().window(30),
       })
    check_forward<float>(kernel, c);
}

BOOST_AUTO_TEST_CASE(head_dimensions) {
  for (const std::int64_t dim : {4, 20, 32, 64, 68, 96, 100, 128})
    check_forward<float>(kernel, Case{1, 66, 75, 2, 1, dim, dim}.causal());
  check_forward<float>(kernel, {1, 66, 75, 2, 1, 128, 32});
  check_forward<float>(kernel, {1, 66, 75, 2, 2, 24, 92});
}

BOOST_AUTO_TEST_CASE(wrong_starts_stay_inside) { check_wrong_starts_of_forward<float>(kernel); }

BOOST_AUTO_TEST_CASE(nan_stays_where_it_is_seen) {
  check_nan_of_forward<float>(kernel, {1, 66, 75, 1, 1, 128, 100});
}

// Sums that are doubtful are computed anew row by row, which would hide faults of copies: they leave NaN. A hidden NaN in
// a tile has it computed so, and the bits differ.
BOOST_AUTO_TEST_CASE(tensor_cores_compute_what_they_can) {
  for (const int dim : {64, 96, 128}) {
    const Case c = Case{1, 40, 110, 8, 8, dim, dim}.causal().window(10);
    const auto result = [](const Case& of) {
      AttentionTensors<float> t(of, Rows::aligned);
      HostTensor<double> out;
      test_kernels({&kernel, 1}, t.forward_problem(), {&t.out, &t.lse},
                   [&](const std::string&) { out = t.out.read<double>(); });
      return out;
    };
    const auto by_tensor_cores = result(c), by_rows = result(c.poison(Poison::hidden_keys));
    for (std::int64_t head = 0; head < c.q_heads; ++head) {
      int differing = 0;
      for (std::int64_t i = 0; i < c.q_len; ++i)
        for (std::int64_t d = 0; d < dim; ++d)
          differing += by_tensor_cores(0, i, head, d) != by_rows(0, i, head, d);
      BOOST_TEST(differing > 0, dim << " features, head " << head);
    }
  }
}

/// Powers of two on operands, with the scale that makes up for those of q and k.
struct Powers {
  int q, k, v;
};

// Parts of numbers that are too large, or whose digits reach below those of floats.
BOOST_AUTO_TEST_CASE(huge_and_tiny_numbers) {
  for (const int dim : {40, 128})
    for (const Powers& p : {Powers{118, -60, 0}, Powers{-60, 118, 0}, Powers{118, -118, 0},
                            Powers{-100, -20, 0}, Powers{60, 60, 0}, Powers{0, 0, 118}, Powers{0, 0, -90},
                            Powers{0, 0, -115}, Powers{0, 0, -130}, Powers{0, 0, -148}}) {
      const Case c = Case{1, 40, 65, 2, 1, dim, dim}.causal().scale(std::ldexp(0.3, -p.q - p.k));
      AttentionTensors<float> t(c, Rows::aligned);
      const auto multiply = [](auto& x, int power) {
        const auto values = x.template read<float>();
        x.fill([&](std::size_t i) { return std::ldexp(values.values()[i], power); });
      };
      multiply(t.q, p.q), multiply(t.k, p.k), multiply(t.v, p.v);
      BOOST_TEST_CONTEXT("powers " << p.q << ", " << p.k << ", " << p.v << ", " << dim << " features")
      check_forward<float>({&kernel, 1}, t, t.forward<naive_t<float>, float>());
    }
}

// An infinite value makes the outputs of those infinite that see it; an infinite product of a key is no weight or NaN.
BOOST_AUTO_TEST_CASE(infinities_are_seen_by_those_who_see_them) {
  for (const double sign : {1.0, -1.0})
    for (const bool of_value : {true, false}) {
      AttentionTensors<float> t(Case{1, 70, 90, 2, 1, 64, 32}.causal().window(40), Rows::aligned);
      auto& x = of_value ? t.v : t.k;
      const auto values = x.read<float>();
      const std::size_t row = static_cast<std::size_t>(values.extent(3)), at = 50 * row + 3;
      x.fill([&](std::size_t i) {
        return i == at ? static_cast<float>(sign * std::numeric_limits<double>::infinity())
                       : values.values()[i];
      });
      check_forward<float>({&kernel, 1}, t, t.forward<naive_t<float>, float>());
    }
}

BOOST_AUTO_TEST_CASE(refusals) {
  const auto refusal = [](const Case& c) {
    return Entry::reject(AttentionTensors<float>(c, Rows::aligned).forward_problem());
  };
  const Case c{1, 3, 5, 2, 1, 8, 8};
  BOOST_TEST(refusal(c) == "");
  BOOST_TEST(refusal({1, 3, 5, 2, 1, 6, 8}) == "head_dim 6 is not a multiple of 4 from 4 to 128");
  BOOST_TEST(refusal({1, 3, 5, 2, 1, 8, 132}) == "head_dim 132 is not a multiple of 4 from 4 to 128");
  BOOST_TEST(refusal(c.scale(-0.7)) == "the scale is not positive");
  BOOST_TEST(refusal(c.sinks()) == "it does not support bias, ALiBi slopes, sinks or block masks");
  Case full = c, invariant = c;
  full.options.compute = Precision::full;
  BOOST_TEST(refusal(full) ==
             "it multiplies floats as two numbers of 11 digits each, but compute = full was requested");
  invariant.options.batch_invariant = true;
  BOOST_TEST(refusal(invariant).ends_with("but batch_invariant was requested"));
  BOOST_TEST(Entry::reject(AttentionTensors<bf16>(c, Rows::aligned).forward_problem()) ==
             "operands are stored as bf16, but it supports only f32");
  BOOST_TEST(Entry::reject(AttentionTensors<float>(c, Rows::strided).forward_problem())
                 .ends_with("elements, which is not a multiple of 4"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
