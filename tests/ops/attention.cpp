// SPDX-License-Identifier: MIT
#include "kformer/ops/attention.hpp"

#include "kformer/ops/attention_plan.hpp"
#include "ops/attention/reference.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/gradient_check.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(attention)

/// Extents of the mask: none, all, or broadcast along one or more extents.
enum class Mask { none, full, queries_and_keys, keys_per_batch };

/// What is filled with NaN.
enum class Poison {
  nothing,
  hidden_keys,     ///< keys and values that no query sees
  blind_queries,   ///< q and dout of queries that see no key
  last_value,      ///< a value that some queries see
  last_key,        ///< a key that some queries see
  first_gradient,  ///< dout of a query that does not see all keys
};

struct Case {
  std::int64_t batch, q_len, kv_len, q_heads, kv_heads, head_dim, v_head_dim;
  bool causal = false;
  std::int64_t window = 0;
  Mask mask = Mask::none;
  double spread = 0.5;  ///< standard deviation of q and k
  Poison poison = Poison::nothing;

  AttentionOptions options() const {
    AttentionOptions o;
    o.causal = causal;
    o.window = window;
    return o;
  }
  AttentionShape shape(DType dtype) const {
    return {dtype, batch, q_len, kv_len, q_heads, kv_heads, head_dim, v_head_dim};
  }
};

// The rule compares largest errors, which need many elements to be steady: small problems come in large
// batches.
const std::vector<Case> cases{
    {64, 1, 1, 1, 1, 1, 1},
    {2, 75, 75, 4, 1, 8, 5, true},
    {1, 113, 113, 3, 3, 5, 8, false, 20},
    {1, 65, 97, 2, 1, 64, 80, true, 33},
    {1, 113, 75, 1, 1, 80, 64, true},  // the first queries see nothing
    {4, 20, 9, 8, 1, 8, 8, false, 3},  // likewise
    {2, 1, 113, 4, 1, 64, 64},
    {16, 75, 1, 2, 1, 8, 8},
    {1, 64, 128, 2, 2, 16, 16},
    {1, 260, 260, 2, 1, 16, 16, true},
    {1, 130, 260, 2, 2, 16, 16, true, 70},
    {2, 75, 113, 4, 2, 8, 8, false, 0, Mask::full},
    {2, 75, 113, 4, 2, 8, 8, true, 50, Mask::full},
    {2, 66, 70, 4, 4, 8, 12, true, 0, Mask::queries_and_keys},
    {3, 9, 75, 2, 1, 8, 8, false, 0, Mask::keys_per_batch},
    {6, 75, 113, 2, 1, 8, 8, false, 0, Mask::none, 5},  // scores of ±80
    {6, 75, 113, 2, 1, 8, 8, true, 0, Mask::none, 5},
    {1, 5, 0, 2, 1, 8, 8},
    {1, 0, 5, 2, 1, 8, 8, true},
    {0, 5, 5, 2, 1, 8, 8},
    {1, 5, 5, 0, 0, 8, 8},
    {4, 5, 7, 4, 2, 0, 64},
    {1, 5, 7, 2, 1, 8, 0},
};

const std::vector<Case> poisoned{
    {3, 75, 113, 2, 1, 8, 8, false, 10, Mask::none, 0.5, Poison::hidden_keys},
    {3, 75, 113, 2, 1, 8, 8, true, 10, Mask::none, 0.5, Poison::hidden_keys},
    {3, 75, 113, 2, 1, 8, 8, false, 0, Mask::keys_per_batch, 0.5, Poison::hidden_keys},
    {3, 75, 113, 2, 1, 8, 8, true, 0, Mask::full, 0.5, Poison::hidden_keys},
    {3, 113, 75, 2, 1, 8, 8, true, 0, Mask::none, 0.5, Poison::blind_queries},
    {3, 75, 113, 2, 1, 8, 8, false, 0, Mask::full, 0.5, Poison::blind_queries},
    {3, 75, 113, 2, 1, 8, 8, true, 0, Mask::none, 0.5, Poison::last_value},
    {3, 75, 113, 2, 1, 8, 8, false, 0, Mask::full, 0.5, Poison::last_value},
    {3, 75, 113, 2, 1, 8, 8, true, 0, Mask::none, 0.5, Poison::last_key},
    {3, 75, 113, 2, 1, 8, 8, false, 0, Mask::full, 0.5, Poison::last_key},
    {3, 75, 113, 2, 1, 8, 8, true, 0, Mask::none, 0.5, Poison::first_gradient},
    {3, 75, 113, 2, 1, 8, 8, false, 0, Mask::full, 0.5, Poison::first_gradient},
};

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

template <class T>
struct Tensors {
  Case c;
  TestTensor<Exec, T> q, k, v, mask, out, dout, dq, dk, dv;
  TestTensor<Exec, compute_t<T>> lse;

  explicit Tensors(const Case& shape, unsigned seed = 20260102) : c(shape) {
    std::mt19937 generator(seed);
    auto rows = [&](std::int64_t length, std::int64_t heads, std::int64_t dim) {
      return TestTensor<Exec, T>({c.batch, length, heads, dim});
    };
    q = rows(c.q_len, c.q_heads, c.head_dim).random(generator, c.spread);
    k = rows(c.kv_len, c.kv_heads, c.head_dim).random(generator, c.spread);
    v = rows(c.kv_len, c.kv_heads, c.v_head_dim).random(generator);
    dout = rows(c.q_len, c.q_heads, c.v_head_dim).random(generator);
    out = rows(c.q_len, c.q_heads, c.v_head_dim);
    dq = rows(c.q_len, c.q_heads, c.head_dim);
    dk = rows(c.kv_len, c.kv_heads, c.head_dim);
    dv = rows(c.kv_len, c.kv_heads, c.v_head_dim);
    lse = TestTensor<Exec, compute_t<T>>({c.batch, c.q_heads, c.q_len});
    if (c.mask != Mask::none) fill_mask(generator);
    if (c.poison != Poison::nothing) poison();
  }

  template <class Real, class Store>
  auto forward() const {
    return ref::attention_forward<Real, Store>(read<Real>(q), read<Real>(k), read<Real>(v), read<Real>(mask),
                                               c.options());
  }
  template <class Real, class Store>
  auto backward() const {
    return ref::attention_backward<Real, Store>(read<Real>(q), read<Real>(k), read<Real>(v), read<Real>(mask),
                                                read<Real>(dout), c.options(),
                                                {read<Real>(out), lse.template read<Real>()});
  }
  Impl::AttentionForward forward_problem() const {
    return {q.ref(), k.ref(), v.ref(), out.ref(), lse.ref(), c.options(), {.bias = mask.ref()}};
  }
  Impl::AttentionBackward backward_problem() const {
    return {q.ref(),
            k.ref(),
            v.ref(),
            out.ref(),
            lse.ref(),
            dout.ref(),
            dq.ref(),
            dk.ref(),
            dv.ref(),
            c.options(),
            {.bias = mask.ref()},
            {}};
  }

  /// Puts what forward saves where backward finds it.
  template <class Real>
  void save(const ref::AttentionResult<Real>& r) {
    out.fill([&](std::size_t i) { return static_cast<compute_t<T>>(r.out.values()[i]); });
    lse.fill([&](std::size_t i) { return static_cast<compute_t<T>>(r.lse.values()[i]); });
  }

 private:
  template <class Real>
  static HostTensor<Real> read(const TestTensor<Exec, T>& t) {
    return t.ref().present() ? t.template read<Real>() : HostTensor<Real>();
  }

  // Numbers and −∞; one query in five sees nothing, and no query sees every seventh key.
  void fill_mask(std::mt19937& generator) {
    const bool full = c.mask == Mask::full, per_batch = full || c.mask == Mask::keys_per_batch;
    const std::int64_t queries = c.mask == Mask::keys_per_batch ? 1 : c.q_len;
    mask = TestTensor<Exec, T>({per_batch ? c.batch : 1, full ? c.q_heads : 1, queries, c.kv_len});
    std::normal_distribution<double> normal;
    std::uniform_int_distribution<int> dice(1, 6);
    mask.fill([&](std::size_t at) {
      const auto j = static_cast<std::int64_t>(at) % c.kv_len,
                 i = static_cast<std::int64_t>(at) / c.kv_len % queries;
      const bool hidden = dice(generator) == 6 || j % 7 == 3 || (queries > 1 && i % 5 == 2);
      return static_cast<compute_t<T>>(hidden ? -infinity : normal(generator));
    });
  }

  // Rewrites a (batch, length, heads, dim) tensor: rows (b, token) for which `condition` holds become NaN.
  template <class Condition>
  void poison_rows(TestTensor<Exec, T>& t, Condition condition) {
    const auto values = t.template read<compute_t<T>>();
    const auto length = values.extent(1), row = values.extent(2) * values.extent(3);
    t.fill([&](std::size_t at) {
      const auto b = static_cast<std::int64_t>(at) / row / length,
                 token = static_cast<std::int64_t>(at) / row % length;
      return condition(b, token) ? static_cast<compute_t<T>>(nan) : values.values()[at];
    });
  }

  void poison() {
    const auto q_values = q.template read<double>(), k_values = k.template read<double>();
    const auto mask_values = read<double>(mask);
    const AttentionOptions options = c.options();
    const ref::AttentionMask<double> seen(q_values, k_values, mask_values, options);
    const auto hidden_key = [&](std::int64_t b, std::int64_t j) {
      for (std::int64_t h = 0; h < c.q_heads; ++h)
        for (std::int64_t i = 0; i < c.q_len; ++i)
          if (seen.sees(b, h, i, j)) return false;
      return true;
    };
    const auto blind_query = [&](std::int64_t b, std::int64_t i) {
      for (std::int64_t h = 0; h < c.q_heads; ++h)
        for (std::int64_t j = 0; j < c.kv_len; ++j)
          if (seen.sees(b, h, i, j)) return false;
      return true;
    };
    int found = 0;
    const auto counted = [&found](auto condition) {
      return [&found, condition](std::int64_t b, std::int64_t i) {
        const bool yes = condition(b, i);
        found += yes;
        return yes;
      };
    };
    // A key that is not hidden from all queries, but from some.
    const auto last_seen = [&](std::int64_t b, std::int64_t j) {
      for (std::int64_t later = j + 1; later < c.kv_len; ++later)
        if (!hidden_key(b, later)) return false;
      return !hidden_key(b, j);
    };
    const auto first_seeing = [&](std::int64_t b, std::int64_t i) {
      for (std::int64_t earlier = 0; earlier < i; ++earlier)
        if (!blind_query(b, earlier)) return false;
      return !blind_query(b, i);
    };
    switch (c.poison) {
      case Poison::nothing:
        return;
      case Poison::hidden_keys:
        poison_rows(k, counted(hidden_key));
        poison_rows(v, hidden_key);
        break;
      case Poison::blind_queries:
        poison_rows(q, counted(blind_query));
        poison_rows(dout, blind_query);
        break;
      case Poison::last_value:
        poison_rows(v, counted(last_seen));
        break;
      case Poison::last_key:
        poison_rows(k, counted(last_seen));
        break;
      case Poison::first_gradient:
        poison_rows(dout, counted(first_seeing));
    }
    BOOST_TEST_REQUIRE(found > 0, "nothing was poisoned");
  }
};

template <class T>
void test_forward(const Case& c) {
  Tensors<T> t(c);
  const auto expected = t.template forward<oracle_t<T>, oracle_t<T>>();
  const auto naive = t.template forward<compute_t<T>, T>();
  test_every_kernel(t.forward_problem(), {&t.out, &t.lse}, [&](const std::string&) {
    check_close("out", t.out, expected.out, naive.out);
    check_close("lse", t.lse, expected.lse, naive.lse);
  });
}

template <class T>
void test_backward(const Case& c) {
  Tensors<T> t(c);
  t.save(t.template forward<oracle_t<T>, oracle_t<T>>());
  const auto expected = t.template backward<oracle_t<T>, oracle_t<T>>();
  const auto naive = t.template backward<compute_t<T>, T>();
  test_every_kernel(t.backward_problem(), {&t.dq, &t.dk, &t.dv}, [&](const std::string&) {
    // With one key dq and dk are dP − δ, two sums that cancel; the naive ones are equal to the last bit, but no
    // kernel that sums in an order of its own can be held to that.
    if (c.kv_len != 1) {
      check_close("dq", t.dq, expected.dq, naive.dq);
      check_close("dk", t.dk, expected.dk, naive.dk);
    }
    check_close("dv", t.dv, expected.dv, naive.dv);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, Scalars) {
  for (const Case& c : cases) test_forward<T>(c);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, Scalars) {
  for (const Case& c : cases) test_backward<T>(c);
}

// The oracle computes nothing from hidden keys, and two NaN compare equal: so NaN must be exactly where it
// belongs.
BOOST_AUTO_TEST_CASE_TEMPLATE(nan_stays_where_it_is_seen, T, Scalars) {
  for (const Case& c : poisoned) {
    BOOST_TEST_CONTEXT("poison " << static_cast<int>(c.poison)) {
      test_forward<T>(c);
      test_backward<T>(c);
    }
  }
}

BOOST_AUTO_TEST_CASE(queries_that_see_nothing) {
  Tensors<float> t({1, 3, 1, 1, 1, 4, 4, true});
  for (const auto& kernel : kernels<Impl::AttentionForward, Exec>())
    kernel.run(Exec(), t.forward_problem(), {});
  Exec().fence("kformer::Testing::attention");
  const auto out = t.out.read<double>(), lse = t.lse.read<double>();
  for (std::int64_t i = 0; i < 2; ++i) {
    BOOST_TEST(lse(0, 0, i) == -infinity);
    for (std::int64_t d = 0; d < 4; ++d) BOOST_TEST(out(0, i, 0, d) == 0);
  }
  BOOST_TEST(std::isfinite(lse(0, 0, 2)));
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  // Scores 0 and ln 3: probabilities 1/4 and 3/4.
  HostTensor<double> q({1, 1, 1, 1}, 1.0), k({1, 2, 1, 1}), v({1, 2, 1, 1}), dout({1, 1, 1, 1}, 1.0);
  k(0, 1, 0, 0) = std::log(3.0);
  v(0, 0, 0, 0) = 4;
  v(0, 1, 0, 0) = 8;
  const auto near = boost::test_tools::tolerance(1e-15);
  const auto r = ref::attention_forward<double, double>(q, k, v, {}, {});
  BOOST_TEST(r.probabilities(0, 0, 0, 0) == 0.25, near);
  BOOST_TEST(r.probabilities(0, 0, 0, 1) == 0.75, near);
  BOOST_TEST(r.out(0, 0, 0, 0) == 7.0, near);
  BOOST_TEST(r.lse(0, 0, 0) == std::log(4.0), near);
  // dP = (4, 8), Σ P dP = 7, dS = (−3/4, 3/4).
  const auto g = ref::attention_backward<double, double>(q, k, v, {}, dout, {});
  BOOST_TEST(g.dv(0, 0, 0, 0) == 0.25, near);
  BOOST_TEST(g.dv(0, 1, 0, 0) == 0.75, near);
  BOOST_TEST(g.dk(0, 0, 0, 0) == -0.75, near);
  BOOST_TEST(g.dk(0, 1, 0, 0) == 0.75, near);
  BOOST_TEST(g.dq(0, 0, 0, 0) == 0.75 * std::log(3.0), near);
}

BOOST_AUTO_TEST_CASE(visibility_by_hand) {
  auto row = [](Impl::Visibility v, std::int64_t i) {
    std::string seen;
    for (std::int64_t j = 0; j < v.kv_len; ++j) seen += v.sees(i, j) ? 'x' : '.';
    return seen;
  };
  // Bottom-right: the last query stands at the last key.
  BOOST_TEST(row({2, 4, 0, true}, 0) == "xxx.");
  BOOST_TEST(row({2, 4, 0, true}, 1) == "xxxx");
  BOOST_TEST(row({4, 2, 0, true}, 1) == "..");
  BOOST_TEST(row({4, 2, 0, true}, 2) == "x.");
  BOOST_TEST(row({5, 5, 2, false}, 2) == ".xxx.");
  BOOST_TEST(row({5, 5, 2, true}, 2) == ".xx..");
  BOOST_TEST(row({5, 5, 1, true}, 4) == "....x");
}

// Holds the portable kernels, through the public functions, against finite differences.
BOOST_AUTO_TEST_CASE(gradients_match_finite_differences) {
  const std::vector<Case> problems{
      {2, 9, 13, 4, 2, 5, 3}, {1, 70, 75, 2, 1, 8, 8, true, 40}, {1, 9, 13, 4, 1, 5, 3, true, 0, Mask::full}};
  for (const Case& c : problems) {
    Tensors<double> t(c), along(c, 7);
    const Exec exec;
    const AttentionOptions options = c.options();
    const auto bytes = attention_backward_workspace_bytes(exec, c.shape(DType::f64), options);
    const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", bytes);
    const auto weights = t.dout.read<double>();
    AttentionExtras<Exec> extras;
    if (c.mask != Mask::none) extras.bias(t.mask.view<4>());

    auto forward = [&](const Tensors<double>& x) {
      attention_forward(exec, x.q.view<4>(), x.k.view<4>(), x.v.view<4>(), t.out.view<4>(), t.lse.view<3>(),
                        options, extras);
      exec.fence("kformer::Testing::attention");
    };
    auto loss = [&](double h) {
      Tensors<double> moved(c);
      auto move = [&](TestTensor<Exec, double>& x, const TestTensor<Exec, double>& direction) {
        const auto from = x.read<double>(), by = direction.read<double>();
        x.fill([&](std::size_t i) { return from.values()[i] + h * by.values()[i]; });
      };
      move(moved.q, along.q);
      move(moved.k, along.k);
      move(moved.v, along.v);
      forward(moved);
      const auto out = t.out.read<double>();
      double sum = 0;
      for (std::size_t i = 0; i < out.values().size(); ++i) sum += out.values()[i] * weights.values()[i];
      return sum;
    };
    forward(t);
    attention_backward(exec, t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>(),
                       t.dout.view<4>(), t.dq.view<4>(), t.dk.view<4>(), t.dv.view<4>(), options, workspace,
                       extras);
    exec.fence("kformer::Testing::attention");
    double analytic = 0;
    auto add = [&](const TestTensor<Exec, double>& gradient, const TestTensor<Exec, double>& direction) {
      const auto g = gradient.read<double>(), d = direction.read<double>();
      for (std::size_t i = 0; i < g.values().size(); ++i) analytic += g.values()[i] * d.values()[i];
    };
    add(t.dq, along.q);
    add(t.dk, along.k);
    add(t.dv, along.v);
    check_gradient("attention", loss, analytic);
  }
}

BOOST_AUTO_TEST_CASE(plan_runs_what_the_functions_run) {
  const Case c{2, 75, 113, 4, 2, 8, 5, true};
  Tensors<float> t(c), u(c);
  const AttentionShape shape = c.shape(DType::f32);
  const AttentionPlan<Exec> plan(shape, c.options());
  BOOST_TEST(plan.forward_workspace_bytes() == attention_forward_workspace_bytes(Exec(), shape, c.options()));
  BOOST_TEST(plan.backward_workspace_bytes() == attention_backward_workspace_bytes(Exec(), shape, c.options()));
  const Kokkos::View<std::byte*, Exec::memory_space> workspace(
      "workspace", std::max(plan.forward_workspace_bytes(), plan.backward_workspace_bytes()));
  const Exec exec;
  plan.forward(exec, t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>(), workspace);
  plan.backward(exec, t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>(),
                t.dout.view<4>(), t.dq.view<4>(), t.dk.view<4>(), t.dv.view<4>(), workspace);
  attention_forward(exec, u.q.view<4>(), u.k.view<4>(), u.v.view<4>(), u.out.view<4>(), u.lse.view<3>(),
                    c.options(), {}, workspace);
  attention_backward(exec, u.q.view<4>(), u.k.view<4>(), u.v.view<4>(), u.out.view<4>(), u.lse.view<3>(),
                     u.dout.view<4>(), u.dq.view<4>(), u.dk.view<4>(), u.dv.view<4>(), c.options(), workspace);
  exec.fence("kformer::Testing::attention");
  BOOST_TEST((t.out.bits() == u.out.bits()));
  BOOST_TEST((t.lse.bits() == u.lse.bits()));
  BOOST_TEST((t.dq.bits() == u.dq.bits()));
  BOOST_TEST((t.dk.bits() == u.dk.bits()));
  BOOST_TEST((t.dv.bits() == u.dv.bits()));
}

BOOST_AUTO_TEST_CASE(plan_errors) {
  const AttentionPlan<Exec> plan({DType::f32, 1, 3, 5, 4, 2, 8, 8});
  Tensors<float> t({1, 4, 5, 4, 2, 8, 8});
  check_error<DimensionMismatch>(
      [&] {
        plan.forward(Exec(), t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>());
      },
      "kformer::attention_forward: extents do not match: q[1,4,4,8] k[1,5,2,8] v[1,5,2,8] out[1,4,4,8] "
      "lse[1,4,4]; "
      "expected the shape of the plan: q[1,3,4,8] k[1,5,2,8] v[1,5,2,8] out[1,3,4,8] lse[1,4,3]");
  Tensors<bf16> half({1, 3, 5, 4, 2, 8, 8});
  check_error<DimensionMismatch>(
      [&] {
        plan.forward(Exec(), half.q.view<4>(), half.k.view<4>(), half.v.view<4>(), half.out.view<4>(),
                     half.lse.view<3>());
      },
      "kformer::attention_forward: q is stored as bf16, expected f32: q[1,3,4,8] k[1,5,2,8] v[1,5,2,8] "
      "out[1,3,4,8] lse[1,4,3]");
  Tensors<float> fits({1, 3, 5, 4, 2, 8, 8});
  check_error<DimensionMismatch>(
      [&] {
        plan.backward(Exec(), fits.q.view<4>(), fits.k.view<4>(), fits.v.view<4>(), fits.out.view<4>(),
                      fits.lse.view<3>(), fits.dout.view<4>(), fits.dq.view<4>(), fits.dk.view<4>(),
                      fits.dv.view<4>(), Workspace{});
      },
      "kformer::attention_backward: the workspace has 0 bytes, 48 are needed; ask "
      "kformer::attention_backward_workspace_bytes: q[1,3,4,8] k[1,5,2,8] v[1,5,2,8] out[1,3,4,8] lse[1,4,3] "
      "dout[1,3,4,8] dq[1,3,4,8] dk[1,5,2,8] dv[1,5,2,8]");
  check_error<DimensionMismatch>(
      [] { AttentionPlan<Exec>({DType::f32, 1, 3, 5, 4, 3, 8, 8}); },
      "kformer::attention_backward: extents do not match: q[1,3,4,8] k[1,5,3,8] v[1,5,3,8] out[1,3,4,8] "
      "lse[1,4,3] "
      "dout[1,3,4,8] dq[1,3,4,8] dk[1,5,3,8] dv[1,5,3,8]; expected the heads of k to divide those of q");
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  Tensors<float> t({1, 3, 5, 4, 2, 8, 6});
  const std::string operands = "q[1,3,4,8] k[1,5,2,8] v[1,5,2,6] out[1,3,4,6] lse[1,4,3]";
  auto forward = [&](const auto& q, const auto& k, const auto& v, const auto& out, const auto& lse,
                     AttentionOptions options = {}) {
    attention_forward(Exec(), q.template view<4>(), k.template view<4>(), v.template view<4>(),
                      out.template view<4>(), lse.template view<3>(), options);
  };
  const std::string start = "kformer::attention_forward: ";
  TestTensor<Exec, float> k_dim({1, 5, 2, 7}), k_heads({1, 5, 3, 8}), v_heads({1, 5, 3, 6}),
      v_long({1, 6, 2, 6}), out_dim({1, 3, 4, 8}), lse_order({1, 3, 4});
  check_error<DimensionMismatch>([&] { forward(t.q, k_dim, t.v, t.out, t.lse); },
                                 start +
                                     "extents do not match: q[1,3,4,8] k[1,5,2,7] v[1,5,2,6] out[1,3,4,6] "
                                     "lse[1,4,3]; expected k to have the batch and head_dim of q");
  check_error<DimensionMismatch>([&] { forward(t.q, t.k, v_long, t.out, t.lse); },
                                 start +
                                     "extents do not match: q[1,3,4,8] k[1,5,2,8] v[1,6,2,6] out[1,3,4,6] "
                                     "lse[1,4,3]; expected v to have the batch, length and heads of k");
  check_error<DimensionMismatch>([&] { forward(t.q, k_heads, v_heads, t.out, t.lse); },
                                 start +
                                     "extents do not match: q[1,3,4,8] k[1,5,3,8] v[1,5,3,6] out[1,3,4,6] "
                                     "lse[1,4,3]; expected the heads of k to divide those of q");
  check_error<DimensionMismatch>([&] { forward(t.q, t.k, t.v, out_dim, t.lse); },
                                 start +
                                     "extents do not match: q[1,3,4,8] k[1,5,2,8] v[1,5,2,6] out[1,3,4,8] "
                                     "lse[1,4,3]; expected out[batch,q_len,q_heads,v_head_dim]");
  check_error<DimensionMismatch>([&] { forward(t.q, t.k, t.v, t.out, lse_order); },
                                 start +
                                     "extents do not match: q[1,3,4,8] k[1,5,2,8] v[1,5,2,6] out[1,3,4,6] "
                                     "lse[1,3,4]; expected lse[batch,q_heads,q_len]");
  TestTensor<Exec, f16> k16({1, 5, 2, 8});
  check_error<DimensionMismatch>([&] { forward(t.q, k16, t.v, t.out, t.lse); },
                                 start + "k is stored as f16, expected f32: " + operands);
  TestTensor<Exec, double> lse64({1, 4, 3});
  check_error<DimensionMismatch>([&] { forward(t.q, t.k, t.v, t.out, lse64); },
                                 start + "lse is stored as f64, expected f32: " + operands);
  AttentionOptions negative;
  negative.window = -2;
  check_error<NotSupported>([&] { forward(t.q, t.k, t.v, t.out, t.lse, negative); },
                            start + "window must not be negative, got -2");
  TestTensor<Exec, float> bias({1, 4, 2, 5});
  check_error<DimensionMismatch>(
      [&] {
        attention_forward(Exec(), t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>(),
                          {}, AttentionExtras<Exec>().bias(bias.view<4>()));
      },
      "kformer::attention_forward: extents do not match: q[1,3,4,8] k[1,5,2,8] v[1,5,2,6] bias[1,4,2,5] "
      "out[1,3,4,6] lse[1,4,3]; expected bias[batch or 1,q_heads or 1,q_len or 1,kv_len]");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
