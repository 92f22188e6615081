// SPDX-License-Identifier: MIT
#include "kformer/ops/standard_attention.hpp"

#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/gradient_check.hpp"
#include "support/read_operand.hpp"
#include "support/references.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(standard_attention)

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The extents of the mask; none if there is no mask.
enum class Mask { none, full, per_batch, per_head, per_query };

struct Case {
  std::int64_t batch, q_len, kv_len, q_heads, kv_heads, head_dim, v_head_dim;
  AttentionOptions options{};
  Mask mask = Mask::none;
  double spread = 1;  ///< standard deviation of q and k
};

const AttentionOptions causal{.causal = true}, window{.window = 9},
    both{.scale = 0.3, .causal = true, .window = 7};

const std::vector<Case> cases{
    {1, 1, 1, 1, 1, 1, 1},
    {2, 7, 7, 4, 4, 5, 3},
    {2, 75, 75, 4, 1, 8, 5, causal},
    {1, 20, 33, 8, 1, 16, 16, both},
    {1, 75, 140, 4, 2, 20, 8, causal},
    {1, 3, 5, 2, 1, 130, 140},
    {1, 33, 20, 2, 2, 8, 8, causal},  // the first queries see nothing
    {1, 40, 20, 2, 1, 8, 8, window},  // likewise
    {1, 140, 135, 2, 1, 4, 6, window},
    {2, 1, 75, 4, 1, 8, 8},
    {2, 9, 17, 4, 2, 8, 8, {}, Mask::full},
    {2, 9, 17, 4, 2, 8, 8, causal, Mask::per_batch},
    {2, 9, 17, 4, 2, 8, 8, window, Mask::per_head},
    {2, 9, 17, 4, 2, 8, 8, both, Mask::per_query},
    {1, 40, 75, 2, 1, 8, 8, {}, Mask::none, 5},  // scores of ±80
    {1, 40, 75, 2, 1, 8, 8, causal, Mask::full, 5},
    // Several tiles, and several steps of the longest sums.
    {1, 300, 600, 3, 1, 40, 24, {.scale = -0.7, .causal = true}},
    {1, 520, 270, 6, 2, 24, 72, {.scale = 0.3, .window = 100}},
    {1, 5, 0, 2, 1, 8, 8},
    {1, 0, 5, 2, 1, 8, 8, causal},
    {0, 5, 5, 2, 1, 8, 8},
    {1, 5, 5, 0, 0, 8, 8},
    {1, 5, 5, 0, 2, 8, 8},
    {1, 5, 7, 2, 1, 0, 8},
    {1, 5, 7, 2, 1, 8, 0},
};

template <class T>
struct Tensors {
  Case c;
  TestTensor<Exec, T> q, k, v, mask, out, probabilities, dout, dq, dk, dv;

  explicit Tensors(const Case& shape, unsigned seed = 20260104) : c(shape) {
    std::mt19937 generator(seed);
    auto tensor = [&](std::int64_t length, std::int64_t heads, std::int64_t dim) {
      return TestTensor<Exec, T>({c.batch, length, heads, dim});
    };
    q = tensor(c.q_len, c.q_heads, c.head_dim).random(generator, c.spread);
    k = tensor(c.kv_len, c.kv_heads, c.head_dim).random(generator, c.spread);
    v = tensor(c.kv_len, c.kv_heads, c.v_head_dim).random(generator);
    dout = tensor(c.q_len, c.q_heads, c.v_head_dim).random(generator);
    out = tensor(c.q_len, c.q_heads, c.v_head_dim);
    dq = tensor(c.q_len, c.q_heads, c.head_dim);
    dk = tensor(c.kv_len, c.kv_heads, c.head_dim);
    dv = tensor(c.kv_len, c.kv_heads, c.v_head_dim);
    probabilities = TestTensor<Exec, T>({c.batch, c.q_heads, c.q_len, c.kv_len}, Rows::packed);
    if (c.mask != Mask::none) fill_mask(generator);
  }

  Impl::StandardAttentionForward forward_problem() const {
    return {q.ref(), k.ref(), v.ref(), mask.ref(), out.ref(), probabilities.ref(), c.options};
  }
  Impl::StandardAttentionBackward backward_problem() const {
    return {q.ref(),  k.ref(),  v.ref(),  probabilities.ref(), dout.ref(), dq.ref(),
            dk.ref(), dv.ref(), c.options};
  }
  template <class Real, class Store>
  auto forward() const {
    return ref::attention_forward<Real, Store, Store>(q.template read<Real>(), k.template read<Real>(),
                                                      v.template read<Real>(), {.bias = read_mask<Real>()},
                                                      c.options);
  }
  template <class Real, class Store>
  auto backward() const {
    return ref::standard_attention_backward<Real, Store>(
        q.template read<Real>(), k.template read<Real>(), v.template read<Real>(),
        probabilities.template read<Real>(), dout.template read<Real>(), c.options);
  }
  template <class Real>
  HostTensor<Real> read_mask() const {
    return read_operand<Real>(mask.ref());
  }

 private:
  // Numbers and −∞; every fourth query, where the mask tells them apart, sees nothing.
  void fill_mask(std::mt19937& generator) {
    const bool full = c.mask == Mask::full;
    mask = TestTensor<Exec, T>({full || c.mask == Mask::per_batch ? c.batch : 1,
                                full || c.mask == Mask::per_head ? c.q_heads : 1,
                                full || c.mask == Mask::per_query ? c.q_len : 1, c.kv_len});
    const std::int64_t queries = mask.ref().extent[2];
    std::normal_distribution<double> normal;
    mask.fill([&](std::size_t at) {
      const auto i = static_cast<std::int64_t>(at) / c.kv_len % queries;
      const double value = normal(generator);
      return static_cast<compute_t<T>>(value > 1 || (queries > 1 && i % 4 == 1) ? -infinity : value);
    });
  }
};

/// Rewrites a (batch, length, heads, dim) tensor: the tokens for which `condition` holds become NaN.
template <class T, class Condition>
void poison_tokens(TestTensor<Exec, T>& t, Condition condition) {
  const auto before = t.template read<compute_t<T>>();
  const std::int64_t length = before.extent(1), row = before.extent(2) * before.extent(3);
  t.fill([&](std::size_t at) {
    const std::int64_t token = static_cast<std::int64_t>(at) / row % length;
    return condition(token) ? static_cast<compute_t<T>>(nan) : before.values()[at];
  });
}

template <class Real>
bool all_finite(const HostTensor<Real>& t) {
  return std::all_of(t.values().begin(), t.values().end(), [](Real x) { return std::isfinite(x); });
}

/// What forward saves, as it would be stored.
template <class T>
void save_probabilities(Tensors<T>& t) {
  const auto saved = t.template forward<oracle_t<T>, oracle_t<T>>().probabilities;
  t.probabilities.fill([&](std::size_t i) { return static_cast<compute_t<T>>(saved.values()[i]); });
}

template <class T>
void check_forward(const Tensors<T>& tensors) {
  auto t = tensors;
  const auto naive = t.template forward<naive_t<T>, T>();
  const auto problem = t.forward_problem();
  problem.check();
  test_every_kernel(problem, {&t.out, &t.probabilities}, [&](const std::string&) {
    check_close("probabilities", t.probabilities, naive.probabilities);
    check_close("out", t.out, naive.out);
  });
}

template <class T>
void check_backward(const Tensors<T>& tensors) {
  auto t = tensors;
  const auto naive = t.template backward<naive_t<T>, T>();
  const auto problem = t.backward_problem();
  problem.check();
  test_every_kernel(problem, {&t.dq, &t.dk, &t.dv}, [&](const std::string&) {
    check_close("dq", t.dq, naive.dq);
    check_close("dk", t.dk, naive.dk);
    check_close("dv", t.dv, naive.dv);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, Scalars) {
  for (const Case& c : cases) check_forward(Tensors<T>(c));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, Scalars) {
  for (const Case& c : cases) {
    Tensors<T> t(c);
    save_probabilities(t);
    check_backward(t);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const std::array options{AttentionOptions{}, causal, window, both};
    const std::array masks{Mask::none, Mask::full, Mask::per_batch, Mask::per_head, Mask::per_query};
    const std::int64_t kv_heads = draw.any(1, 3), keys = draw.any(1, 60);
    Case c{draw.any(1, 2),
           draw.one_in(3) ? keys : draw.any(1, 60),
           keys,
           kv_heads * draw.any(1, 3),
           kv_heads,
           draw.any(1, 40),
           draw.any(1, 40),
           draw.one_of(options),
           draw.one_of(masks),
           draw.spread()};
    Tensors<T> t(c, draw.seed());
    check_forward(t);
    save_probabilities(t);
    check_backward(t);
  });
}

// One thread gets all 80 queries in a tile, several get tiles of 64 and 16: with few keys, packing them again is cheap.
BOOST_AUTO_TEST_CASE_TEMPLATE(bits_do_not_depend_on_the_number_of_threads, T, Scalars) {
  Tensors<T> t({1, 80, 4, 1, 1, 40, 8});
  std::vector<std::vector<unsigned char>> bits;
  for (const Exec& exec : {Exec(), one_thread()}) {
    standard_attention_forward(exec, t.q.template view<4>(), t.k.template view<4>(), t.v.template view<4>(),
                               t.out.template view<4>(), t.probabilities.template view<4>());
    exec.fence("kformer::Testing::standard_attention");
    bits.push_back(t.probabilities.bits());
    bits.push_back(t.out.bits());
  }
  BOOST_TEST((bits[0] == bits[2]));
  BOOST_TEST((bits[1] == bits[3]));
}

// The oracle computes nothing from a hidden key; agreement with it shows that the NaN did not spread.
BOOST_AUTO_TEST_CASE_TEMPLATE(nan_in_hidden_places_does_not_leak, T, Scalars) {
  const std::int64_t q_len = 20, kv_len = 33;
  for (const AttentionOptions& options : {both, causal, window}) {
    Tensors<T> t({1, q_len, kv_len, 4, 2, 8, 8, options});
    const Impl::Visibility visibility{q_len, kv_len, options.window, options.causal};
    // Keys that no query sees, and the last key, which in causal attention only the last query sees.
    const auto hidden = [&](std::int64_t j) { return j < visibility.first(0) || j + 1 == kv_len; };
    poison_tokens(t.k, hidden);
    poison_tokens(t.v, hidden);
    check_forward(t);
    save_probabilities(t);
    check_backward(t);
    BOOST_TEST(std::isfinite(t.template forward<oracle_t<T>, oracle_t<T>>().out(0, 0, 0, 0)));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(nan_behind_a_mask_does_not_leak, T, Scalars) {
  Tensors<T> t({2, 9, 17, 4, 2, 8, 8, {}, Mask::per_query});
  const auto third_hidden = [](std::int64_t j) { return j % 3 == 0; };
  const auto mask = t.template read_mask<compute_t<T>>();
  t.mask.fill([&](std::size_t at) {
    return third_hidden(static_cast<std::int64_t>(at) % 17) ? static_cast<compute_t<T>>(-infinity)
                                                            : mask.values()[at];
  });
  poison_tokens(t.k, third_hidden);
  poison_tokens(t.v, third_hidden);
  check_forward(t);
  save_probabilities(t);
  check_backward(t);
  const auto expected = t.template backward<oracle_t<T>, oracle_t<T>>();
  BOOST_TEST((all_finite(expected.dq) && all_finite(expected.dk) && all_finite(expected.dv)));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(nan_of_a_query_that_sees_nothing_does_not_leak, T, Scalars) {
  const std::int64_t q_len = 33, kv_len = 20;
  Tensors<T> t({1, q_len, kv_len, 4, 2, 8, 8, causal});
  const auto blind = [&](std::int64_t i) { return i + kv_len < q_len; };
  poison_tokens(t.q, blind);
  poison_tokens(t.dout, blind);
  check_forward(t);
  save_probabilities(t);
  check_backward(t);
  const auto expected = t.template backward<oracle_t<T>, oracle_t<T>>();
  BOOST_TEST((all_finite(expected.dq) && all_finite(expected.dk) && all_finite(expected.dv)));
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  // One query, two keys with scores 0 and log 3: probabilities 1/4 and 3/4.
  HostTensor<double> q({1, 1, 1, 1}, 1.0), k({1, 2, 1, 1}), v({1, 2, 1, 1}), dout({1, 1, 1, 1}, 2.0);
  k.values() = {0, std::log(3.0)};
  v.values() = {8, 16};
  const AttentionOptions unscaled{.scale = 1};
  const auto r = ref::attention_forward<double, double>(q, k, v, {}, unscaled);
  const auto tolerance = boost::test_tools::tolerance(1e-14);
  BOOST_TEST(r.probabilities(0, 0, 0, 0) == 0.25, tolerance);
  BOOST_TEST(r.probabilities(0, 0, 0, 1) == 0.75, tolerance);
  BOOST_TEST(r.out(0, 0, 0, 0) == 14.0, tolerance);
  HostTensor<double> probabilities({1, 1, 1, 2});
  probabilities.values() = {0.25, 0.75};
  const auto g = ref::standard_attention_backward<double, double>(q, k, v, probabilities, dout, unscaled);
  // dP = (16, 32), Σ P dP = 28, dS = (−3, 3).
  BOOST_TEST((g.dv.values() == std::vector<double>{0.5, 1.5}));
  BOOST_TEST((g.dk.values() == std::vector<double>{-3, 3}));
  BOOST_TEST(g.dq(0, 0, 0, 0) == 3 * std::log(3.0), tolerance);
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
  for (const Case& c : {Case{2, 5, 7, 4, 2, 6, 3, both, Mask::full}, Case{1, 6, 4, 4, 1, 6, 6, causal}}) {
    Tensors<double> t(c), moved(c);
    const Tensors<double> direction(c, 7);
    auto values = [](const auto& tensor) { return tensor.template read<double>().values(); };
    auto forward = [&](const Tensors<double>& at) {
      if (c.mask == Mask::none)
        standard_attention_forward(Exec(), at.q.view<4>(), at.k.view<4>(), at.v.view<4>(), at.out.view<4>(),
                                   at.probabilities.view<4>(), c.options);
      else
        standard_attention_masked_forward(
            Exec(),
            StandardAttentionMaskedForwardOperands{.q = at.q.view<4>(),
                                                   .k = at.k.view<4>(),
                                                   .v = at.v.view<4>(),
                                                   .mask = at.mask.view<4>(),
                                                   .out = at.out.view<4>(),
                                                   .probabilities = at.probabilities.view<4>()},
            c.options);
      Exec().fence("kformer::Testing::standard_attention");
    };
    auto move = [&](auto& to, const auto& from, const auto& along, double h) {
      const auto a = values(from), d = values(along);
      to.fill([&](std::size_t i) { return a[i] + h * d[i]; });
    };
    auto loss = [&](double h) {
      move(moved.q, t.q, direction.q, h);
      move(moved.k, t.k, direction.k, h);
      move(moved.v, t.v, direction.v, h);
      forward(moved);
      return dot(values(moved.out), values(t.dout));
    };
    forward(t);
    const std::size_t bytes =
        standard_attention_backward_workspace_bytes<double>(Exec(), c.batch, c.q_heads, c.q_len, c.kv_len);
    BOOST_TEST(bytes == values(t.probabilities).size() * sizeof(double));
    const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", bytes);
    standard_attention_backward(Exec(),
                                StandardAttentionBackwardOperands{.q = t.q.view<4>(),
                                                                  .k = t.k.view<4>(),
                                                                  .v = t.v.view<4>(),
                                                                  .probabilities = t.probabilities.view<4>(),
                                                                  .dout = t.dout.view<4>(),
                                                                  .dq = t.dq.view<4>(),
                                                                  .dk = t.dk.view<4>(),
                                                                  .dv = t.dv.view<4>()},
                                c.options, workspace);
    Exec().fence("kformer::Testing::standard_attention");
    check_gradient("q, k, v", loss,
                   dot(values(t.dq), values(direction.q)) + dot(values(t.dk), values(direction.k)) +
                       dot(values(t.dv), values(direction.v)));
  }
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  using Tensor = TestTensor<Exec, float>;
  const Tensor q({1, 3, 4, 8}), k({1, 5, 2, 8}), out({1, 3, 4, 8}), k3({1, 5, 3, 8});
  const Tensor probabilities({1, 4, 3, 5}, Rows::packed), padded({1, 4, 3, 5}), mask({1, 2, 3, 5});
  const std::string operands = "q[1,3,4,8] k[1,5,2,8] v[1,5,2,8] ";
  auto forward = [&](const Tensor& key, const Tensor& result, const Tensor& p, AttentionOptions options = {}) {
    standard_attention_forward(Exec(), q.view<4>(), key.view<4>(), key.view<4>(), result.view<4>(), p.view<4>(),
                               options);
  };
  check_error<DimensionMismatch>([&] { forward(k3, out, probabilities); },
                                 "kformer::standard_attention_forward: extents do not match: q[1,3,4,8] "
                                 "k[1,5,3,8] v[1,5,3,8] out[1,3,4,8] "
                                 "probabilities[1,4,3,5]; expected the heads of k to divide those of q");
  check_error<DimensionMismatch>(
      [&] { forward(k, k, probabilities); },
      "kformer::standard_attention_forward: extents do not match: " + operands +
          "out[1,5,2,8] probabilities[1,4,3,5]; expected out[batch,q_len,q_heads,v_head_dim]");
  check_error<DimensionMismatch>(
      [&] { forward(k, out, out); },
      "kformer::standard_attention_forward: extents do not match: " + operands +
          "out[1,3,4,8] probabilities[1,3,4,8]; expected probabilities[batch,q_heads,q_len,kv_len]");
  const auto not_dense = [](const std::string& stride, const std::string& extents) {
    return "kformer::standard_attention_forward: probabilities must be dense and row-major, because products "
           "take "
           "them as one array; its stride along extent " +
           stride + "; use Kokkos::LayoutRight or copy it: probabilities" + extents;
  };
  check_error<DimensionMismatch>(
      [&] { forward(k, out, padded); },
      not_dense("2 is " + std::to_string(padded.ref().stride[2]) + ", expected 5", "[1,4,3,5]"));
  // Rows of one key, five places apart, whose other strides are multiples of that.
  const Tensor one_key({1, 1, 2, 8});
  Impl::StandardAttentionForward apart{
      q.ref(), one_key.ref(), one_key.ref(), {}, out.ref(), probabilities.ref(), {}};
  apart.probabilities.extent = {1, 4, 3, 1};
  apart.probabilities.stride = {60, 15, 5, 5};
  check_error<DimensionMismatch>([&] { apart.check(); }, not_dense("2 is 5, expected 1", "[1,4,3,1]"));
  apart.probabilities.stride = {99, 3, 1, 7};  // those of extents of 1 do not matter
  BOOST_CHECK_NO_THROW(apart.check());
  check_error<NotSupported>([&] { forward(k, out, probabilities, {.window = -1}); },
                            "kformer::standard_attention_forward: window must not be negative, got -1");
  check_error<NotSupported>(
      [&] { forward(k, out, probabilities, {.softcap = 2}); },
      "kformer::standard_attention_forward: softcap is not supported; use kformer::attention_*");
  const std::string by_extents =
      ": batch_invariant is not supported, because products choose the order of a sum by their extents; use "
      "kformer::attention_*";
  check_error<NotSupported>([&] { forward(k, out, probabilities, {.batch_invariant = true}); },
                            "kformer::standard_attention_forward" + by_extents);
  check_error<DimensionMismatch>(
      [&] {
        standard_attention_masked_forward(
            Exec(), StandardAttentionMaskedForwardOperands{.q = q.view<4>(),
                                                           .k = k.view<4>(),
                                                           .v = k.view<4>(),
                                                           .mask = mask.view<4>(),
                                                           .out = out.view<4>(),
                                                           .probabilities = probabilities.view<4>()});
      },
      "kformer::standard_attention_masked_forward: extents do not match: " + operands +
          "mask[1,2,3,5] out[1,3,4,8] probabilities[1,4,3,5]; expected mask[batch or 1,q_heads or 1,q_len or "
          "1,kv_len]");
  const Tensor dq_like_q({1, 3, 4, 8}), dk({1, 5, 2, 8}), dv({1, 5, 2, 8});
  auto backward = [&](const Tensor& dq, const Workspace& workspace, const AttentionOptions& options = {}) {
    standard_attention_backward(Exec(),
                                StandardAttentionBackwardOperands{.q = q.view<4>(),
                                                                  .k = k.view<4>(),
                                                                  .v = k.view<4>(),
                                                                  .probabilities = probabilities.view<4>(),
                                                                  .dout = out.view<4>(),
                                                                  .dq = dq.view<4>(),
                                                                  .dk = dk.view<4>(),
                                                                  .dv = dv.view<4>()},
                                options, workspace);
  };
  check_error<NotSupported>([&] { backward(dq_like_q, {}, {.batch_invariant = true}); },
                            "kformer::standard_attention_backward" + by_extents);
  check_error<DimensionMismatch>([&] { backward(k, {}); },
                                 "kformer::standard_attention_backward: extents do not match: " + operands +
                                     "probabilities[1,4,3,5] dout[1,3,4,8] dq[1,5,2,8] dk[1,5,2,8] "
                                     "dv[1,5,2,8]; expected dq, dk and dv to have "
                                     "the extents of q, k and v");
  check_error<DimensionMismatch>(
      [&] { backward(dq_like_q, {}); },
      "kformer::standard_attention_backward: the workspace has 0 bytes, 240 are needed; ask "
      "kformer::standard_attention_backward_workspace_bytes: " +
          operands + "probabilities[1,4,3,5] dout[1,3,4,8] dq[1,3,4,8] dk[1,5,2,8] dv[1,5,2,8]");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
