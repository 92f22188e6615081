// SPDX-License-Identifier: MIT
// The gradients of attention of floats by products of TF32 on emulated CUDA blocks, whose tensor cores cut off what they add,
// against the reference by the rule.
#include "cuda/backward_kernels.hpp"
#include "cuda/nan_of_backward.hpp"
#include "cuda/wrong_starts.hpp"
#include "kformer/ops/impl/flash_backward.hpp"
#include "ops/attention/cuda/entries.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(float_attention_backward_emulated)

using Case = AttentionCase;
using Entry = Impl::cuda::FloatBackwardEntry<Exec>;
constexpr auto kernel = Entry::entry();

void test_all(const std::vector<Case>& cases) {
  for (const Case& c : cases) check_backward<float>(kernel, c);
}

BOOST_AUTO_TEST_CASE(shapes_and_positions) {
  test_all(edge_cases());
  test_all({
      Case{8, 1, 1, 1, 1, 4, 4},
      Case{1, 75, 75, 4, 1, 8, 40}.causal(),
      Case{1, 113, 113, 3, 3, 16, 12}.window(20),
      Case{2, 20, 9, 8, 1, 8, 8}.window(3),
      Case{4, 1, 113, 4, 1, 64, 64},
      Case{4, 75, 1, 2, 1, 8, 8},
      Case{1, 130, 200, 2, 2, 16, 16}.causal().window(70),
      Case{2, 75, 113, 2, 1, 8, 8}.causal().spread(5),
      Case{1, 75, 113, 1, 1, 100, 128}.causal().spread(3),
      Case{1, 33, 900, 1, 1, 64, 64},
      Case{1, 700, 20, 1, 1, 128, 128}.scale(0.3),
  });
}

BOOST_AUTO_TEST_CASE(head_dimensions) {
  std::vector<Case> cases;
  for (const std::int64_t dim : {4, 20, 32, 64, 68, 96, 100, 128})
    cases.push_back(Case{1, 66, 75, 2, 1, dim, dim}.causal());
  cases.push_back({1, 66, 75, 2, 1, 128, 32});
  cases.push_back({1, 66, 75, 2, 2, 24, 92});
  test_all(cases);
}

// Several tiles of either side, more than two passes each. A stage is copied into again, while other warps lag behind: in
// every other pair of emulated blocks copies arrive at once.
BOOST_AUTO_TEST_CASE(tiles) {
  with_tiles_of_each_memory([] {
    test_all({
        Case{1, 140, 150, 3, 1, 64, 64}.causal(),
        Case{2, 110, 75, 1, 1, 96, 96}.scale(0.3),
        Case{1, 40, 110, 5, 1, 96, 96}.causal(),
        Case{1, 140, 40, 2, 1, 128, 128}.window(90),
        Case{1, 40, 140, 3, 3, 128, 128}.causal(),
        Case{1, 0, 0, 2, 1, 128, 96}.packed({70, 0, 41}, {40, 5, 67}).causal().softcap(2),
    });
  });
}

BOOST_AUTO_TEST_CASE(soft_caps_and_packed_sequences) {
  const Case c{1, 0, 0, 4, 2, 8, 8};
  const std::vector<int> lengths{75, 0, 1, 40, 64}, others{64, 7, 0, 90, 65};
  test_all({
      Case{1, 75, 113, 4, 2, 8, 8}.softcap(1),
      Case{1, 75, 113, 4, 1, 8, 8}.causal().window(40).softcap(20).spread(3),
      Case{1, 75, 113, 4, 2, 64, 64}.causal().softcap(3).scale(0.3),
      c.packed(lengths, lengths).causal(),
      c.packed(lengths, others).causal().window(30),
      c.packed({}, {}),
      c.packed({0, 0}, {0, 3}),
      c.packed(std::vector<int>(9, 3), std::vector<int>(9, 5)).causal(),
      Case{1, 0, 0, 2, 1, 24, 40}.packed(lengths, others).causal().softcap(2),
  });
}

BOOST_AUTO_TEST_CASE(wrong_starts_stay_inside) { check_wrong_starts_of_backward<float>(kernel); }

BOOST_AUTO_TEST_CASE(nan_stays_where_it_is_seen) {
  check_nan_of_backward<float>(kernel, {1, 66, 75, 1, 1, 128, 100});
}

/// dq, dk and dv. `change(tensors)` alters operands before.
template <class F>
std::vector<HostTensor<double>> gradients(const Case& c, F change) {
  AttentionTensors<float> t(c, Rows::aligned);
  change(t);
  t.save(t.forward<double, float>());
  std::vector<HostTensor<double>> all;
  test_kernels({&kernel, 1}, t.backward_problem(), t.gradients(), [&](const std::string&) {
    all = {t.dq.read<double>(), t.dk.read<double>(), t.dv.read<double>()};
  });
  return all;
}
/// How many finite numbers of a head differ, of the tokens from `first` on.
int differing(const HostTensor<double>& x, const HostTensor<double>& y, std::int64_t head,
              std::int64_t first = 0) {
  int count = 0;
  for (std::int64_t i = first; i < x.extent(1); ++i)
    for (std::int64_t d = 0; d < x.extent(3); ++d)
      count += std::isfinite(x(0, i, head, d) - y(0, i, head, d)) && x(0, i, head, d) != y(0, i, head, d);
  return count;
}

// Sums that are doubtful are computed anew row by row, which would hide faults of copies: they leave NaN. A hidden NaN among
// the partners of a tile has it computed so, and the bits differ.
BOOST_AUTO_TEST_CASE(tensor_cores_compute_what_they_can) {
  with_tiles_of_each_memory([] {
    for (const int dim : {64, 96, 128}) {
      const Case of_queries = Case{1, 40, 90, 2, 2, dim, dim}.causal().window(10),
                 of_keys = Case{1, 90, 40, 2, 2, dim, dim}.causal().window(10);
      const auto as_they_are = [](auto&) {};
      const auto dq = gradients(of_queries, as_they_are)[0],
                 dq_by_rows = gradients(of_queries.poison(Poison::hidden_keys), as_they_are)[0];
      const auto keys = gradients(of_keys, as_they_are),
                 keys_by_rows = gradients(of_keys.poison(Poison::blind_queries), as_they_are);
      BOOST_TEST_CONTEXT(dim << " features")
      for (const std::int64_t head : {0, 1}) {
        BOOST_TEST(differing(dq, dq_by_rows, head) > 0);
        BOOST_TEST(differing(keys[1], keys_by_rows[1], head) > 0);
        BOOST_TEST(differing(keys[2], keys_by_rows[2], head) > 0);
      }
    }
  });
}

// Where all scores are near −128, a key that is not there would have infinite weights. The second tile has keys 128 to 139; with
// a gradient of NaN, which keys 134 to 139 do not see, it is computed row by row.
BOOST_AUTO_TEST_CASE(rows_past_the_last_one_do_not_count) {
  const auto move = [](auto& x, float by) {
    const auto values = x.template read<float>();
    x.fill([&](std::size_t i) { return values.values()[i] + by; });
  };
  const auto lower = [&](auto& t) { move(t.q, 4), move(t.k, -4); };
  const auto lower_and_spoil = [&](auto& t) {
    lower(t);
    const auto values = t.dout.template read<float>();
    t.dout.fill([&](std::size_t i) {
      return i / 64 == 64 ? std::numeric_limits<float>::quiet_NaN() : values.values()[i];
    });
  };
  with_tiles_of_each_memory([&] {
    const Case c = Case{1, 140, 140, 1, 1, 64, 64}.window(70);
    const auto keys = gradients(c, lower), keys_by_rows = gradients(c, lower_and_spoil);
    BOOST_TEST(differing(keys[1], keys_by_rows[1], 0, 134) > 0);
    BOOST_TEST(differing(keys[2], keys_by_rows[2], 0, 134) > 0);
  });
}

/// Powers of two on operands, with the scale that makes up for those of q and k.
struct Powers {
  int q, k, v, dout;
};

// Parts of numbers that are too large, or whose digits reach below those of floats.
BOOST_AUTO_TEST_CASE(huge_and_tiny_numbers) {
  for (const int dim : {40, 128})
    for (const Powers& p : {
             Powers{118, -60, 0, 0},
             Powers{-60, 118, 0, 0},
             Powers{118, -118, 0, 0},
             Powers{-100, -20, 0, 0},
             Powers{60, 60, 0, 0},
             Powers{0, 0, 118, 0},
             Powers{0, 0, 0, 118},
             Powers{0, 0, 118, -118},
             Powers{0, 0, -60, 60},
             Powers{0, 0, -90, 0},
             Powers{0, 0, 0, -90},
             Powers{0, 0, -115, 0},
             Powers{0, 0, 0, -115},
             Powers{0, 0, 0, -130},
             Powers{0, 0, 0, -148},
         }) {
      const Case c = Case{1, 40, 65, 2, 1, dim, dim}.causal().scale(std::ldexp(0.3, -p.q - p.k));
      AttentionTensors<float> t(c, Rows::aligned);
      const auto multiply = [](auto& x, int power) {
        const auto values = x.template read<float>();
        x.fill([&](std::size_t i) { return std::ldexp(values.values()[i], power); });
      };
      multiply(t.q, p.q), multiply(t.k, p.k), multiply(t.v, p.v), multiply(t.dout, p.dout);
      BOOST_TEST_CONTEXT("powers " << p.q << ", " << p.k << ", " << p.v << ", " << p.dout << ", " << dim
                                   << " features")
      check_backward<float>({&kernel, 1}, t, t.forward<naive_t<float>, float>());
    }
}

BOOST_AUTO_TEST_CASE(refusals) {
  const auto why = []<class T = float>(const Case& c, auto change, T = {}) {
    return refusal_of_backward<T>(kernel, c, change);
  };
  const Case c{1, 5, 7, 2, 1, 16, 16};
  const auto as_it_is = [](auto&) {};
  BOOST_TEST(why(c, as_it_is) == "");
  BOOST_TEST(why({1, 5, 7, 2, 1, 6, 16}, as_it_is) == "head_dim 6 is not a multiple of 4 from 4 to 128");
  BOOST_TEST(why({1, 5, 7, 2, 1, 8, 132}, as_it_is) == "head_dim 132 is not a multiple of 4 from 4 to 128");
  BOOST_TEST(why(c, as_it_is, bf16()) == "operands are stored as bf16, but it supports only f32");
  BOOST_TEST(why(c, [](auto& p) { p.options.compute = Precision::full; }) ==
             "it multiplies floats as two numbers of 11 digits each, but compute = full was requested");
  BOOST_TEST(why(c.sinks(), as_it_is) == "it does not support bias, ALiBi slopes, sinks or block masks");
  BOOST_TEST(why(c.scale(-0.7), as_it_is) == "the scale is not positive");
  const auto shift = [](TensorRef& x) { x.data = static_cast<float*>(x.data) + 1; };
  BOOST_TEST(why(c, [&](auto& p) { shift(p.dout); }) == "dout is not aligned to 16 bytes");
  BOOST_TEST(why(c, [&](auto& p) { shift(p.dq); }) == "dq is not aligned to 16 bytes");
  BOOST_TEST(why(c, [&](auto& p) { p.dv.stride[1] += 2; }) ==
             "dv has a stride of 26 elements, which is not a multiple of 4");
  AttentionTensors<float> t(c, Rows::aligned);
  BOOST_TEST(kernel.workspace_bytes(t.backward_problem()) == 1 * 2 * 5 * sizeof(float));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
