// SPDX-License-Identifier: MIT
// The cases of attention: the tensor-core kernels, decoding, and those of compute capability 9.0.
#include "first_contact/array.hpp"
#include "first_contact/report.hpp"
#include "ops/attention/cuda/hopper/arguments.hpp"
#include "ops/attention/reference.hpp"

namespace kformer::FirstContact {

namespace {

namespace cuda = Impl::cuda;
namespace ref = Impl::reference;

struct Shape {
  std::int64_t batch, q_len, kv_len, q_heads, kv_heads, head_dim;
  AttentionOptions options = {};
};

std::string describe(DType dtype, const Shape& s) {
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  return std::string(to_string(dtype)) + ' ' + text(s.batch) + " x " + text(s.q_len) + " queries, " +
         text(s.kv_len) + " keys, " + text(s.q_heads) + '/' + text(s.kv_heads) + " heads of " +
         text(s.head_dim) + (s.options.causal ? ", causal" : "") +
         (s.options.window > 0 ? ", window " + text(s.options.window) : "") +
         (s.options.softcap > 0 ? ", soft cap" : "");
}

/// The operands of a shape, and what the references make of them.
template <class T>
class Problem {
  using Stored = std::conditional_t<std::is_same_v<T, float>, float, std::uint16_t>;

 public:
  explicit Problem(const Shape& shape)
      : s(shape),
        q(queries()),
        k(keys()),
        v(keys()),
        out(queries()),
        dout(queries()),
        dq(queries()),
        dk(keys()),
        dv(keys()),
        lse({s.batch, s.q_heads, s.q_len}),
        delta({s.batch, s.q_heads, s.q_len}) {
    std::mt19937 generator(8);
    q.random(generator, 0.5), k.random(generator, 0.5), v.random(generator), dout.random(generator);
  }

  const Shape s;
  Array<T> q, k, v, out, dout, dq, dk, dv;
  Array<float> lse, delta;

  cuda::AttentionArgumentsOf<Stored> arguments() {
    cuda::AttentionArgumentsOf<Stored> a{};
    a.q = heads(q, s.q_len, s.q_heads), a.out = heads(out, s.q_len, s.q_heads);
    a.k = heads(k, s.kv_len, s.kv_heads), a.v = heads(v, s.kv_len, s.kv_heads);
    a.lse = {lse.data(), s.q_heads * s.q_len, s.q_len, 1};
    a.q_heads = static_cast<int>(s.q_heads), a.group = static_cast<int>(s.q_heads / s.kv_heads);
    a.head_dim = a.v_head_dim = static_cast<int>(s.head_dim);
    a.scale = static_cast<float>(Impl::attention_scale(s.options, s.head_dim));
    a.softcap = static_cast<float>(s.options.softcap);
    a.window = static_cast<int>(s.options.window), a.causal = s.options.causal;
    return a;
  }
  cuda::GradientArgumentsOf<Stored> gradients() {
    cuda::GradientArgumentsOf<Stored> g{};
    g.a = arguments();
    g.dout = heads(dout, s.q_len, s.q_heads), g.dq = heads(dq, s.q_len, s.q_heads);
    g.dk = heads(dk, s.kv_len, s.kv_heads), g.dv = heads(dv, s.kv_len, s.kv_heads);
    g.delta = delta.data();
    g.kv_heads = static_cast<int>(s.kv_heads), g.q_len = static_cast<int>(s.q_len);
    return g;
  }
  cuda::Sequences sequences() const {
    return {static_cast<int>(s.batch), static_cast<int>(s.q_len), static_cast<int>(s.kv_len), nullptr, nullptr};
  }
  /// (feature, token, head, batch)
  cuda::TensorShape tiles(const Array<T>& x, std::int64_t length, std::int64_t count) const {
    const auto number = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
    return {
        x.data(),
        {number(s.head_dim), number(length), number(count), number(s.batch)},
        {2, number(2 * count * s.head_dim), number(2 * s.head_dim), number(2 * length * count * s.head_dim)},
        {}};
  }
  cuda::TensorShape query_tiles(const Array<T>& x) const { return tiles(x, s.q_len, s.q_heads); }
  cuda::TensorShape key_tiles(const Array<T>& x) const { return tiles(x, s.kv_len, s.kv_heads); }

  auto forward() {
    using N = naive_t<T>;
    return ref::attention_forward<N, T>(q.template read<N>(), k.template read<N>(), v.template read<N>(), {},
                                        s.options);
  }
  /// From what forward saved.
  auto backward() {
    using N = naive_t<T>;
    return ref::attention_backward<N, T>(q.template read<N>(), k.template read<N>(), v.template read<N>(), {},
                                         dout.template read<N>(), s.options,
                                         {out.template read<N>(), lse.template read<N>()});
  }
  /// Puts what forward saves where backward finds it.
  void save() {
    const auto saved = forward();
    out.fill([&](std::size_t i) { return static_cast<float>(saved.out.values()[i].value()); });
    lse.fill([&](std::size_t i) { return static_cast<float>(saved.lse.values()[i].value()); });
  }

 private:
  std::vector<std::int64_t> queries() const { return {s.batch, s.q_len, s.q_heads, s.head_dim}; }
  std::vector<std::int64_t> keys() const { return {s.batch, s.kv_len, s.kv_heads, s.head_dim}; }
  cuda::Heads<Stored> heads(const Array<T>& x, std::int64_t length, std::int64_t count) const {
    return {reinterpret_cast<Stored*>(x.data()), length * count * s.head_dim,
            static_cast<int>(count * s.head_dim), static_cast<int>(s.head_dim)};
  }
};

template <class T>
constexpr cuda::Half half_of = std::is_same_v<T, bf16> ? cuda::Half::bf16 : cuda::Half::f16;

/// `launch(problem)` computes forward.
template <class T, class Launch>
void check_forward(Report& report, const std::string& kernel, const Shape& s, Launch launch) {
  const std::string what = describe(dtype_of<T>, s);
  if (!report.wants(kernel, what)) return;
  Problem<T> p(s);
  const auto naive = p.forward();
  report.check(
      kernel, what, [&] { launch(p); },
      [&] { return first_of({p.out.judge("out", naive.out), p.lse.judge("lse", naive.lse)}); });
}

/// The same of backward, without δ.
template <class T, class Launch>
void check_backward(Report& report, const std::string& kernel, const Shape& s, Launch launch) {
  const std::string what = describe(dtype_of<T>, s);
  if (!report.wants(kernel, what)) return;
  Problem<T> p(s);
  p.save();
  const auto naive = p.backward();
  report.check(
      kernel, what,
      [&] {
        if constexpr (std::is_same_v<T, float>)
          cuda::attention_delta({}, p.gradients(), p.sequences());
        else
          cuda::attention_delta({}, half_of<T>, p.gradients(), p.sequences());
        launch(p);
      },
      [&] {
        return first_of({p.dq.judge("dq", naive.dq), p.dk.judge("dk", naive.dk), p.dv.judge("dv", naive.dv)});
      });
}

/// The keys in three parts.
template <class T>
void check_decode(Report& report, const Shape& s) {
  const int rows =
      s.q_len * (s.q_heads / s.kv_heads) <= cuda::decode_rows[0] ? cuda::decode_rows[0] : cuda::decode_rows[1];
  cuda::Partials partials{nullptr, s.batch * s.q_len * s.q_heads, 3, static_cast<int>(s.head_dim)};
  Array<float> workspace({partials.bytes() / static_cast<std::int64_t>(sizeof(float))});
  partials.data = workspace.data();
  check_forward<T>(report, "attention_forward[cuda_decode]", s, [&](Problem<T>& p) {
    cuda::attention_decode({}, half_of<T>, p.arguments(), p.sequences(), partials, rows);
  });
}

template <class T>
void check_forward_mma(Report& report, const Shape& s) {
  check_forward<T>(report, "attention_forward[cuda_mma]", s, [](Problem<T>& p) {
    cuda::attention_forward({}, half_of<T>, p.arguments(), p.sequences());
  });
}
void check_forward_tf32x3(Report& report, const Shape& s) {
  check_forward<float>(report, "attention_forward[cuda_tf32x3]", s, [](Problem<float>& p) {
    cuda::attention_forward_tf32x3({}, p.arguments(), p.sequences());
  });
}
template <class T>
void check_forward_wgmma(Report& report, const Shape& s) {
  check_forward<T>(report, "attention_forward[cuda_wgmma]", s, [&](Problem<T>& p) {
    cuda::attention_forward_wgmma({}, report.device().multiprocessors, half_of<T>, p.arguments(),
                                  {p.query_tiles(p.q), p.key_tiles(p.k), p.key_tiles(p.v)}, p.sequences());
  });
}
template <class T>
void check_backward_mma(Report& report, const Shape& s) {
  check_backward<T>(report, "attention_backward[cuda_mma]", s, [&](Problem<T>& p) {
    cuda::attention_backward({}, cuda::machine_of_device(report.device().capability), half_of<T>, p.gradients(),
                             p.sequences());
  });
}
void check_backward_tf32x3(Report& report, const Shape& s) {
  check_backward<float>(report, "attention_backward[cuda_tf32x3]", s, [&](Problem<float>& p) {
    cuda::attention_backward_tf32x3({}, cuda::machine_of_device(report.device().capability), p.gradients(),
                                    p.sequences());
  });
}
template <class T>
void check_backward_wgmma(Report& report, const Shape& s) {
  check_backward<T>(report, "attention_backward[cuda_wgmma]", s, [](Problem<T>& p) {
    cuda::attention_backward_wgmma(
        {}, half_of<T>, p.gradients(),
        {p.query_tiles(p.q), p.key_tiles(p.k), p.key_tiles(p.v), p.query_tiles(p.dout)}, p.sequences());
  });
}

/// Tiles that are not full, grouped heads, more keys than queries and fewer, each mask.
std::vector<Shape> shapes_of(std::int64_t head_dim) {
  return {{2, 77, 77, 4, 2, head_dim, {.causal = true}},
          {1, 150, 201, 2, 1, head_dim, {}},
          {1, 65, 197, 2, 1, head_dim, {.causal = true, .window = 33}},
          {1, 113, 75, 1, 1, head_dim, {.causal = true}}};  // the first queries see nothing
}

template <class T>
void check_type(Report& report) {
  for (const std::int64_t head_dim : {64, 96, 128, 256})
    for (const Shape& s : shapes_of(head_dim)) {
      check_forward_mma<T>(report, s);
      check_backward_mma<T>(report, s);
    }
  const Shape capped{1, 65, 97, 2, 1, 64, {.causal = true, .softcap = 20}};
  check_forward_mma<T>(report, capped);
  check_backward_mma<T>(report, capped);
  for (const std::int64_t head_dim : {64, 128, 256}) {
    check_decode<T>(report, {2, 1, 300, 8, 2, head_dim, {.causal = true}});
    check_decode<T>(report, {1, 7, 300, 16, 2, head_dim, {.causal = true, .window = 200}});
  }
  if (!report.has_warpgroups()) return;
  for (const std::int64_t head_dim : {64, 96, 128, 256})
    for (const Shape& s : shapes_of(head_dim)) check_forward_wgmma<T>(report, s);
  for (const std::int64_t head_dim : {64, 128})
    for (const Shape& s : shapes_of(head_dim)) check_backward_wgmma<T>(report, s);
}

}  // namespace

void check_attention(Report& report) {
  check_type<bf16>(report);
  check_type<f16>(report);
  const auto check_tf32x3 = [&](const Shape& s) {
    check_forward_tf32x3(report, s);
    check_backward_tf32x3(report, s);
  };
  for (const std::int64_t head_dim : {32, 64, 96, 128})
    for (const Shape& s : shapes_of(head_dim)) check_tf32x3(s);
  check_tf32x3({1, 65, 97, 2, 1, 64, {.causal = true, .softcap = 20}});
  // Sums of many terms.
  check_forward_tf32x3(report, {1, 40, 2000, 1, 1, 64, {}});
  check_backward_tf32x3(report, {1, 2000, 40, 1, 1, 64, {}});
}

}  // namespace kformer::FirstContact
