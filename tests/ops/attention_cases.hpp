// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kformer/ops/attention.hpp"
#include "support/every_kernel.hpp"
#include "support/references.hpp"

/// \file
/// Problems of flash attention for tests: their description, and operands of a fixed seed.

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

/// Extents of the bias: none, all, or broadcast along one or more extents.
enum class Bias { none, full, queries_and_keys, keys_per_batch };

/// What is filled with NaN.
enum class Poison {
  nothing,
  hidden_keys,     ///< keys and values that no query sees
  blind_queries,   ///< q and dout of queries that see no key
  last_value,      ///< a value that some queries see
  last_key,        ///< a key that some queries see
  first_gradient,  ///< dout of a query that does not see all keys
};

/// A problem of attention, `AttentionCase(batch, q_len, kv_len, q_heads, kv_heads, head_dim, v_head_dim)` and
/// what its other functions add to that.
struct AttentionCase {
  std::int64_t batch, q_len, kv_len, q_heads, kv_heads, head_dim, v_head_dim;
  AttentionOptions options = {};
  Bias bias_kind = Bias::none;
  bool bias_has_gradient = true, has_alibi = false, has_sinks = false;
  std::vector<int> q_lengths = {}, kv_lengths = {};  ///< of packed sequences
  std::int64_t block_q = 0, block_kv = 0;
  double deviation = 0.5;  ///< of q and k
  Poison poisoned = Poison::nothing;

  AttentionCase causal() const {
    return changed([](auto& c) { c.options.causal = true; });
  }
  AttentionCase window(std::int64_t n) const {
    return changed([=](auto& c) { c.options.window = n; });
  }
  AttentionCase softcap(double cap) const {
    return changed([=](auto& c) { c.options.softcap = cap; });
  }
  AttentionCase scale(double x) const {
    return changed([=](auto& c) { c.options.scale = x; });
  }
  AttentionCase bias(Bias kind) const {
    return changed([=](auto& c) { c.bias_kind = kind; });
  }
  AttentionCase constant_bias(Bias kind) const {
    return changed([=](auto& c) { c.bias_kind = kind, c.bias_has_gradient = false; });
  }
  AttentionCase alibi() const {
    return changed([](auto& c) { c.has_alibi = true; });
  }
  AttentionCase sinks() const {
    return changed([](auto& c) { c.has_sinks = true; });
  }
  /// Sequences of these lengths; q_len and kv_len follow.
  AttentionCase packed(std::vector<int> q, std::vector<int> kv) const {
    return changed([&](auto& c) {
      c.q_len = std::accumulate(q.begin(), q.end(), std::int64_t(0));
      c.kv_len = std::accumulate(kv.begin(), kv.end(), std::int64_t(0));
      c.q_lengths = std::move(q), c.kv_lengths = std::move(kv);
    });
  }
  AttentionCase blocks(std::int64_t queries, std::int64_t keys) const {
    return changed([=](auto& c) { c.block_q = queries, c.block_kv = keys; });
  }
  /// Scores of ±80 where `x` is 5.
  AttentionCase spread(double x) const {
    return changed([=](auto& c) { c.deviation = x; });
  }
  AttentionCase poison(Poison what) const {
    return changed([=](auto& c) { c.poisoned = what; });
  }

  AttentionShape shape(DType dtype) const {
    return {dtype, batch, q_len, kv_len, q_heads, kv_heads, head_dim, v_head_dim};
  }

 private:
  template <class F>
  AttentionCase changed(F change) const {
    AttentionCase c = *this;
    change(c);
    return c;
  }
};

/// What every kernel has to get right: tiles that are not full, queries that see nothing, and extents of zero.
inline std::vector<AttentionCase> edge_cases() {
  return {
      AttentionCase{1, 65, 97, 2, 1, 64, 80}.causal().window(33),
      AttentionCase{1, 113, 75, 1, 1, 80, 64}.causal(),  // the first queries see nothing
      AttentionCase{1, 64, 128, 2, 2, 16, 16},
      AttentionCase{1, 260, 260, 2, 1, 16, 16}.causal(),
      AttentionCase{1, 5, 0, 2, 1, 8, 8},
      AttentionCase{1, 0, 5, 2, 1, 8, 8}.causal(),
      AttentionCase{0, 5, 5, 2, 1, 8, 8},
      AttentionCase{1, 5, 5, 0, 0, 8, 8},
      AttentionCase{1, 5, 5, 0, 2, 8, 8},
  };
}

/// The operands of a case, and the results of the references.
template <class T>
struct AttentionTensors {
  using C = compute_t<T>;

  AttentionCase c;
  TestTensor<Exec, T> q, k, v, out, dout, dq, dk, dv, bias, dbias, sinks;
  TestTensor<Exec, C> lse, slopes, dsinks;
  TestTensor<Exec, std::int32_t> cu_seqlens_q, cu_seqlens_kv, block_mask;

  explicit AttentionTensors(const AttentionCase& problem, Rows kind = Rows::strided, unsigned seed = 20260102)
      : c(problem) {
    std::mt19937 generator(seed);
    auto rows = [&](std::int64_t length, std::int64_t heads, std::int64_t dim) {
      return TestTensor<Exec, T>({c.batch, length, heads, dim}, kind);
    };
    q = rows(c.q_len, c.q_heads, c.head_dim).random(generator, c.deviation);
    k = rows(c.kv_len, c.kv_heads, c.head_dim).random(generator, c.deviation);
    v = rows(c.kv_len, c.kv_heads, c.v_head_dim).random(generator);
    dout = rows(c.q_len, c.q_heads, c.v_head_dim).random(generator);
    out = rows(c.q_len, c.q_heads, c.v_head_dim);
    dq = rows(c.q_len, c.q_heads, c.head_dim);
    dk = rows(c.kv_len, c.kv_heads, c.head_dim);
    dv = rows(c.kv_len, c.kv_heads, c.v_head_dim);
    lse = TestTensor<Exec, C>({c.batch, c.q_heads, c.q_len});
    if (c.bias_kind != Bias::none) fill_bias(generator);
    if (c.has_alibi) {
      slopes = TestTensor<Exec, C>({c.q_heads});
      slopes.fill([](std::size_t h) { return static_cast<C>(0.5 / static_cast<double>(h + 1)); });
    }
    if (c.has_sinks) {
      sinks = TestTensor<Exec, T>({c.q_heads}).random(generator, 1.0, 1.0);
      dsinks = TestTensor<Exec, C>({c.q_heads}).random(generator);
    }
    if (!c.q_lengths.empty()) {
      cu_seqlens_q = starts(c.q_lengths);
      cu_seqlens_kv = starts(c.kv_lengths);
    }
    if (c.block_q > 0) fill_blocks(generator);
    if (c.poisoned != Poison::nothing) poison();
  }

  Impl::AttentionExtraRefs extra_refs() const {
    return {bias.ref(),          slopes.ref(),     sinks.ref(), cu_seqlens_q.ref(),
            cu_seqlens_kv.ref(), block_mask.ref(), c.block_q,   c.block_kv};
  }
  Impl::AttentionForward forward_problem() const {
    return {q.ref(), k.ref(), v.ref(), out.ref(), lse.ref(), c.options, extra_refs()};
  }
  Impl::AttentionBackward backward_problem() const {
    return {q.ref(),  k.ref(),  v.ref(),  out.ref(), lse.ref(),    dout.ref(),
            dq.ref(), dk.ref(), dv.ref(), c.options, extra_refs(), {dbias.ref(), dsinks.ref()}};
  }

  template <class Real>
  ref::AttentionExtraTensors<Real> extras() const {
    return {read<Real>(bias),          read<Real>(slopes),     read<Real>(sinks), read<Real>(cu_seqlens_q),
            read<Real>(cu_seqlens_kv), read<Real>(block_mask), c.block_q,         c.block_kv};
  }
  template <class Real, class Store>
  auto forward() const {
    return ref::attention_forward<Real, Store>(read<Real>(q), read<Real>(k), read<Real>(v), extras<Real>(),
                                               c.options);
  }
  /// From what forward saved; dsinks includes what was there before.
  template <class Real, class Store>
  auto backward() const {
    auto r =
        ref::attention_backward<Real, Store>(read<Real>(q), read<Real>(k), read<Real>(v), extras<Real>(),
                                             read<Real>(dout), c.options, {read<Real>(out), read<Real>(lse)});
    if (!c.has_sinks) return r;
    const auto before = read<Real>(dsinks);
    for (std::size_t h = 0; h < before.values().size(); ++h) r.dsinks.values()[h] += before.values()[h];
    return r;
  }

  /// Puts what forward saves where backward finds it.
  template <class Real>
  void save(const ref::AttentionResult<Real>& r) {
    out.fill([&](std::size_t i) { return static_cast<C>(r.out.values()[i]); });
    lse.fill([&](std::size_t i) { return static_cast<C>(r.lse.values()[i]); });
  }

  std::vector<Output*> gradients() {
    std::vector<Output*> all{&dq, &dk, &dv};
    if (dbias.ref().present()) all.push_back(&dbias);
    if (c.has_sinks) all.push_back(&dsinks);
    return all;
  }

 private:
  template <class Real, class S>
  static HostTensor<Real> read(const TestTensor<Exec, S>& t) {
    return t.ref().present() ? t.template read<Real>() : HostTensor<Real>();
  }
  static TestTensor<Exec, std::int32_t> starts(const std::vector<int>& lengths) {
    TestTensor<Exec, std::int32_t> t({static_cast<std::int64_t>(lengths.size()) + 1});
    t.fill([&](std::size_t n) { return std::accumulate(lengths.begin(), lengths.begin() + n, 0); });
    return t;
  }

  // Numbers and −∞; one query in five sees nothing, and no query sees every seventh key.
  void fill_bias(std::mt19937& generator) {
    const bool full = c.bias_kind == Bias::full, per_batch = full || c.bias_kind == Bias::keys_per_batch;
    const std::int64_t queries = c.bias_kind == Bias::keys_per_batch ? 1 : c.q_len;
    const std::vector<std::int64_t> extents{per_batch ? c.batch : 1, full ? c.q_heads : 1, queries, c.kv_len};
    bias = TestTensor<Exec, T>(extents);
    if (c.bias_has_gradient) dbias = TestTensor<Exec, T>(extents);
    std::normal_distribution<double> normal;
    std::uniform_int_distribution<int> dice(1, 6);
    bias.fill([&](std::size_t at) {
      const auto j = static_cast<std::int64_t>(at) % c.kv_len,
                 i = static_cast<std::int64_t>(at) / c.kv_len % queries;
      const bool hidden = dice(generator) == 6 || j % 7 == 3 || (queries > 1 && i % 5 == 2);
      return static_cast<C>(hidden ? -std::numeric_limits<double>::infinity() : normal(generator));
    });
  }

  // Two blocks in three exist; the first row of blocks and the last column are empty.
  void fill_blocks(std::mt19937& generator) {
    const auto count = [](std::int64_t length, std::int64_t block) { return (length + block - 1) / block; };
    const std::int64_t rows = count(c.q_len, c.block_q), columns = count(c.kv_len, c.block_kv);
    block_mask = TestTensor<Exec, std::int32_t>({c.batch, c.q_heads, rows, columns});
    std::uniform_int_distribution<int> dice(1, 3);
    block_mask.fill([&](std::size_t at) {
      const auto n = static_cast<std::int64_t>(at);
      const bool hidden =
          dice(generator) == 3 || n / columns % rows == 0 || (columns > 1 && n % columns == columns - 1);
      return hidden ? 0 : 1;
    });
  }

  // Rewrites a (batch, length, heads, dim) tensor: rows (b, token) for which `condition` holds become NaN.
  template <class Condition>
  void poison_rows(TestTensor<Exec, T>& t, Condition condition) {
    const auto values = t.template read<C>();
    const auto length = values.extent(1), row = values.extent(2) * values.extent(3);
    t.fill([&](std::size_t at) {
      const auto b = static_cast<std::int64_t>(at) / row / length,
                 token = static_cast<std::int64_t>(at) / row % length;
      return condition(b, token) ? std::numeric_limits<C>::quiet_NaN() : values.values()[at];
    });
  }

  void poison() {
    std::vector<bool> key_is_seen(static_cast<std::size_t>(c.batch * c.kv_len)),
        query_sees(static_cast<std::size_t>(c.batch * c.q_len));
    const auto q_values = q.template read<double>(), k_values = k.template read<double>();
    const auto extra_values = extras<double>();
    const ref::AttentionScores<double> scores(q_values, k_values, extra_values, c.options);
    ref::for_each_query(q_values, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
      for (const std::int64_t j : scores.keys(b, h, i, c.kv_len))
        key_is_seen[b * c.kv_len + j] = query_sees[b * c.q_len + i] = true;
    });
    int found = 0;
    const auto hidden_key = [&](std::int64_t b, std::int64_t j) { return !key_is_seen[b * c.kv_len + j]; };
    const auto blind_query = [&](std::int64_t b, std::int64_t i) { return !query_sees[b * c.q_len + i]; };
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
    switch (c.poisoned) {
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

/// The operands of the public functions on the tensors of a case.
template <class T>
AttentionExtras<Exec> extras_of(const AttentionTensors<T>& t) {
  AttentionExtras<Exec> x;
  if (t.bias.ref().present()) x.bias(t.bias.template view<4>());
  if (t.c.has_alibi) x.alibi_slopes(t.slopes.template view<1>());
  if (t.c.has_sinks) x.sinks(t.sinks.template view<1>());
  if (!t.c.q_lengths.empty())
    x.sequences(t.cu_seqlens_q.template view<1>(), t.cu_seqlens_kv.template view<1>());
  if (t.c.block_q > 0) x.block_mask(t.block_mask.template view<4>(), t.c.block_q, t.c.block_kv);
  return x;
}

template <class T>
AttentionExtraGradients<Exec> extra_gradients_of(const AttentionTensors<T>& t) {
  AttentionExtraGradients<Exec> x;
  if (t.dbias.ref().present()) x.bias(t.dbias.template view<4>());
  if (t.c.has_sinks) x.sinks(t.dsinks.template view<1>());
  return x;
}

template <class T>
auto backward_operands(const AttentionTensors<T>& t) {
  return AttentionBackwardOperands{.q = t.q.template view<4>(),
                                   .k = t.k.template view<4>(),
                                   .v = t.v.template view<4>(),
                                   .out = t.out.template view<4>(),
                                   .lse = t.lse.template view<3>(),
                                   .dout = t.dout.template view<4>(),
                                   .dq = t.dq.template view<4>(),
                                   .dk = t.dk.template view<4>(),
                                   .dv = t.dv.template view<4>()};
}

/// Every kernel of `list` that accepts the case gives what the reference gives.
/// \param naive what the reference gives
template <class T>
void check_forward(KernelList<Impl::AttentionForward, Exec> list, AttentionTensors<T>& t,
                   const ref::AttentionResult<naive_t<T>>& naive) {
  test_kernels(list, t.forward_problem(), {&t.out, &t.lse}, [&](const std::string&) {
    check_close("out", t.out, naive.out);
    check_close("lse", t.lse, naive.lse);
  });
}

/// The same of one kernel, which may read rows by 16 bytes.
template <class T>
void check_forward(const Kernel<Impl::AttentionForward, Exec>& kernel, const AttentionCase& c) {
  AttentionTensors<T> t(c, Rows::aligned);
  check_forward<T>({&kernel, 1}, t, t.template forward<naive_t<T>, T>());
}

/// The same of kernels of backward; `t` gets what forward saves.
/// \param forward what the reference of forward gives
template <class T>
void check_backward(KernelList<Impl::AttentionBackward, Exec> list, AttentionTensors<T>& t,
                    const ref::AttentionResult<naive_t<T>>& forward) {
  t.save(forward);
  const auto naive = t.template backward<naive_t<T>, T>();
  test_kernels(list, t.backward_problem(), t.gradients(), [&](const std::string&) {
    check_close("dq", t.dq, naive.dq);
    check_close("dk", t.dk, naive.dk);
    check_close("dv", t.dv, naive.dv);
    if (t.dbias.ref().present()) check_close("dbias", t.dbias, naive.dbias);
    if (t.c.has_sinks) check_close("dsinks", t.dsinks, naive.dsinks);
  });
}

/// The same of one kernel, which may read rows by 16 bytes.
template <class T>
void check_backward(const Kernel<Impl::AttentionBackward, Exec>& kernel, const AttentionCase& c) {
  AttentionTensors<T> t(c, Rows::aligned);
  check_backward<T>({&kernel, 1}, t, t.template forward<naive_t<T>, T>());
}

}  // namespace kformer::Testing
