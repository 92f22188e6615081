// SPDX-License-Identifier: MIT
// The tensor-core kernels of attention on problems that fill a GPU: sampled rows against the reference by the rule, and times.
#include "cuda/warpgroups.hpp"
#include "ops/attention/cuda/entries.hpp"
#include "ops/attention_cases.hpp"
#include "support/skipped.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(large_attention)

using Forward = Kernel<Impl::AttentionForward, Exec>;
using Backward = Kernel<Impl::AttentionBackward, Exec>;
constexpr Forward wgmma = Impl::cuda::WarpgroupForwardEntry<Exec>::entry(),
                  mma = Impl::cuda::ForwardEntry<Exec>::entry(),
                  tf32x3 = Impl::cuda::FloatForwardEntry<Exec>::entry(),
                  decode = Impl::cuda::DecodeEntry<Exec>::entry();
constexpr Backward wgmma_backward = Impl::cuda::WarpgroupBackwardEntry<Exec>::entry(),
                   mma_backward = Impl::cuda::BackwardEntry<Exec>::entry(),
                   tf32x3_backward = Impl::cuda::FloatBackwardEntry<Exec>::entry();

struct Shape {
  std::int64_t batch, q_len, kv_len, q_heads, kv_heads, head_dim;
  bool causal = false;
  std::int64_t window = 0;

  /// The keys that a query sees: [first, end).
  std::int64_t first(std::int64_t query) const {
    return window > 0 ? std::max<std::int64_t>(0, query + kv_len - q_len - window + 1) : 0;
  }
  std::int64_t end(std::int64_t query) const { return causal ? query + kv_len - q_len + 1 : kv_len; }
  /// Pairs of a query and a key, of all heads.
  double pairs() const {
    double sum = 0;
    for (std::int64_t i = 0; i < q_len; ++i) sum += static_cast<double>(end(i) - first(i));
    return sum * static_cast<double>(batch * q_heads);
  }
  std::string describe() const {
    const auto text = [](std::int64_t n) { return std::to_string(n); };
    return text(batch) + " x " + text(q_len) + " queries, " + text(kv_len) + " keys, " + text(q_heads) + "/" +
           text(kv_heads) + " heads of " + text(head_dim) + (causal ? ", causal" : "") +
           (window > 0 ? ", window " + text(window) : "");
  }
};

template <class T>
using Heads = Kokkos::View<T****, Kokkos::LayoutRight, Exec::memory_space>;
using Rows3 = Kokkos::View<float***, Kokkos::LayoutRight, Exec::memory_space>;

/// Numbers between −1.7 and 1.7, whose variance is 1.
template <class T>
Heads<T> random_heads(const char* name, std::int64_t batch, std::int64_t length, std::int64_t heads,
                      std::int64_t features, std::uint64_t seed) {
  const Heads<T> x(std::string(name), batch, length, heads, features);
  T* const data = x.data();
  Kokkos::parallel_for(
      "kformer::Testing::random_heads", Kokkos::RangePolicy<Exec>(0, x.size()), KOKKOS_LAMBDA(std::size_t i) {
        std::uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u + seed * 0xd1342543de82ef95u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u, z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        data[i] = T((static_cast<float>((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1) * 1.7320508f);
      });
  return x;
}

template <class T>
void fill_with_nan(const Heads<T>& x) {
  T* const data = x.data();
  Kokkos::parallel_for(
      "kformer::Testing::fill_with_nan", Kokkos::RangePolicy<Exec>(0, x.size()),
      KOKKOS_LAMBDA(std::size_t i) { data[i] = T(NAN); });
}

template <class View>
TensorRef ref_of(const View& x, DType dtype) {
  TensorRef r;
  r.data = x.data(), r.dtype = dtype, r.rank = static_cast<int>(View::rank());
  for (int i = 0; i < r.rank; ++i) {
    r.extent[i] = static_cast<std::int64_t>(x.extent(i));
    r.stride[i] = static_cast<std::int64_t>(x.stride(i));
  }
  return r;
}

/// Part of an array on the host: tokens [first, end) of heads [head, head + heads) of a batch.
template <class Real, class T>
HostTensor<Real> part(const Heads<T>& x, std::int64_t batch, std::int64_t first, std::int64_t end,
                      std::int64_t head, std::int64_t heads) {
  const auto there =
      Kokkos::subview(x, static_cast<std::size_t>(batch), std::pair(first, end), Kokkos::ALL, Kokkos::ALL);
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, there);
  HostTensor<Real> result({1, end - first, heads, static_cast<std::int64_t>(x.extent(3))});
  for (std::int64_t i = 0; i < end - first; ++i)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t d = 0; d < result.extent(3); ++d)
        result(0, i, h, d) = Real(static_cast<float>(host(i, head + h, d)));
  return result;
}
template <class Real>
HostTensor<Real> part(const Rows3& x, std::int64_t batch, std::int64_t head, std::int64_t heads,
                      std::int64_t first, std::int64_t end) {
  const auto there =
      Kokkos::subview(x, static_cast<std::size_t>(batch), std::pair(head, head + heads), Kokkos::ALL);
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, there);
  HostTensor<Real> result({1, heads, end - first});
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = first; i < end; ++i) result(0, h, i - first) = Real(host(h, i));
  return result;
}

template <class T>
struct Problem {
  Shape s;
  AttentionOptions options;
  Heads<T> q, k, v, out, dout, dq, dk, dv;
  Rows3 lse;

  explicit Problem(const Shape& shape) : s(shape) {
    options.causal = s.causal, options.window = s.window;
    q = random_heads<T>("q", s.batch, s.q_len, s.q_heads, s.head_dim, 1);
    k = random_heads<T>("k", s.batch, s.kv_len, s.kv_heads, s.head_dim, 2);
    v = random_heads<T>("v", s.batch, s.kv_len, s.kv_heads, s.head_dim, 3);
    out = Heads<T>("out", s.batch, s.q_len, s.q_heads, s.head_dim);
    lse = Rows3("lse", s.batch, s.q_heads, s.q_len);
  }
  void prepare_backward() {
    dout = random_heads<T>("dout", s.batch, s.q_len, s.q_heads, s.head_dim, 4);
    dq = Heads<T>("dq", q.layout()), dk = Heads<T>("dk", k.layout()), dv = Heads<T>("dv", v.layout());
  }
  TensorRef of(const Heads<T>& x) const { return ref_of(x, dtype_of<T>); }
  Impl::AttentionForward forward() const {
    return {of(q), of(k), of(v), of(out), ref_of(lse, DType::f32), options, {}};
  }
  Impl::AttentionBackward backward() const {
    return {of(q),  of(k),   of(v), of(out), ref_of(lse, DType::f32), of(dout), of(dq), of(dk),
            of(dv), options, {},    {}};
  }

  /// Of query `i`, by the reference on the keys that it sees.
  void check_forward_row(std::int64_t batch, std::int64_t head, std::int64_t i) const {
    using Naive = naive_t<T>;
    const std::int64_t own = head / (s.q_heads / s.kv_heads), first = s.first(i), end = s.end(i);
    const auto naive = ref::attention_forward<Naive, T>(
        part<Naive>(q, batch, i, i + 1, head, 1), part<Naive>(k, batch, first, end, own, 1),
        part<Naive>(v, batch, first, end, own, 1), {}, AttentionOptions{});
    check_close<T>("out", part<double>(out, batch, i, i + 1, head, 1), naive.out);
    check_close<float>("lse", part<double>(lse, batch, head, 1, i, i + 1), naive.lse);
  }
  /// The gradient of query `i`, by what forward saved.
  void check_query_row(std::int64_t batch, std::int64_t head, std::int64_t i) const {
    const std::int64_t own = head / (s.q_heads / s.kv_heads);
    check_close<T>("dq", part<double>(dq, batch, i, i + 1, head, 1),
                   gradients(batch, head, 1, i, i + 1, own, s.first(i), s.end(i)).dq);
  }
  /// The gradients of key and value `j`, from all queries that see it.
  void check_key_row(std::int64_t batch, std::int64_t own, std::int64_t j) const {
    const std::int64_t group = s.q_heads / s.kv_heads;
    std::int64_t first = 0, end = s.q_len;
    while (first < end && s.end(first) <= j) ++first;
    while (end > first && s.first(end - 1) > j) --end;
    const auto naive = gradients(batch, own * group, group, first, end, own, j, j + 1);
    check_close<T>("dk", part<double>(dk, batch, j, j + 1, own, 1), naive.dk);
    check_close<T>("dv", part<double>(dv, batch, j, j + 1, own, 1), naive.dv);
  }

 private:
  auto gradients(std::int64_t batch, std::int64_t head, std::int64_t heads, std::int64_t first_query,
                 std::int64_t end_query, std::int64_t own, std::int64_t first_key, std::int64_t end_key) const {
    using Naive = naive_t<T>;
    return ref::attention_backward<Naive, T>(
        part<Naive>(q, batch, first_query, end_query, head, heads),
        part<Naive>(k, batch, first_key, end_key, own, 1), part<Naive>(v, batch, first_key, end_key, own, 1),
        {}, part<Naive>(dout, batch, first_query, end_query, head, heads), AttentionOptions{},
        {part<Naive>(out, batch, first_query, end_query, head, heads),
         part<Naive>(lse, batch, head, heads, first_query, end_query)});
  }
};

/// Seconds of a call: the least mean of five turns.
template <class F>
double seconds_of(F f) {
  Exec exec;
  const auto turn = [&](int calls) {
    exec.fence("kformer::Testing::seconds_of");
    const Kokkos::Timer timer;
    for (int i = 0; i < calls; ++i) f();
    exec.fence("kformer::Testing::seconds_of");
    return timer.seconds() / calls;
  };
  turn(2);
  const int calls = std::clamp(static_cast<int>(0.02 / turn(1)), 1, 1000);
  double least = turn(calls);
  for (int i = 0; i < 4; ++i) least = std::min(least, turn(calls));
  return least;
}

template <class T, class P>
void run(const Kernel<P, Exec>& kernel, const P& problem, const Shape& s, double flops, double bytes) {
  const std::string why = kernel.reject(problem);
  BOOST_TEST(why == "");
  if (!why.empty()) return;
  const std::size_t need = kernel.workspace_bytes(problem);
  const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", need);
  const double seconds = seconds_of([&] { kernel.run(Exec(), problem, workspace); });
  std::printf("time: %s[%s] %s, %s: %.4f ms, %.1f TFLOP/s, %.0f GB/s\n", P::function, kernel.name,
              s.describe().c_str(), to_string(dtype_of<T>), 1e3 * seconds, flops / seconds * 1e-12,
              bytes / seconds * 1e-9);
  std::fflush(stdout);
}

template <class T>
void check_forward_kernels(const Shape& s, const std::vector<Forward>& kernels) {
  Problem<T> p(s);
  const double rows = static_cast<double>(s.batch * s.head_dim) * sizeof(T),
               bytes = rows * static_cast<double>(2 * s.q_len * s.q_heads + 2 * s.kv_len * s.kv_heads);
  for (const Forward& kernel : kernels) {
    fill_with_nan(p.out);
    run<T>(kernel, p.forward(), s, 4 * p.s.pairs() * static_cast<double>(s.head_dim), bytes);
    BOOST_TEST_CONTEXT(kernel.name << ", " << s.describe())
    for (std::int64_t n = 0; n < 12; ++n)
      p.check_forward_row(n % s.batch, n * 7 % s.q_heads,
                          n == 0   ? 0
                          : n == 1 ? s.q_len - 1
                                   : n * 7919 % s.q_len);
  }
}

template <class T>
void check_backward_kernels(const Shape& s, const std::vector<Backward>& kernels) {
  Problem<T> p(s);
  p.prepare_backward();
  const Forward& forward = std::is_same_v<T, float> ? tf32x3 : mma;
  forward.run(Exec(), p.forward(), {});
  for (const Backward& kernel : kernels) {
    fill_with_nan(p.dq);
    fill_with_nan(p.dk);
    fill_with_nan(p.dv);
    run<T>(kernel, p.backward(), s, 10 * p.s.pairs() * static_cast<double>(s.head_dim), 0);
    BOOST_TEST_CONTEXT(kernel.name << ", " << s.describe()) {
      for (std::int64_t n = 0; n < 6; ++n)
        p.check_query_row(n % s.batch, n * 7 % s.q_heads,
                          n == 0   ? 0
                          : n == 1 ? s.q_len - 1
                                   : n * 7919 % s.q_len);
      // The reference of a key passes over all queries that see it: with a causal mask, few of the last keys.
      for (const std::int64_t j : {s.kv_len * 15 / 16 + 3, s.kv_len - 1})
        p.check_key_row(s.batch - 1, j % s.kv_heads, j);
    }
  }
}

constexpr Shape long_sequences[] = {
    {1, 8192, 8192, 64, 8, 128, true}, {1, 8192, 8192, 64, 8, 128},
    {1, 8192, 8192, 64, 8, 64, true},  {1, 8192, 8192, 64, 8, 64},
    {4, 2048, 2048, 32, 8, 128, true}, {2, 4096, 4096, 32, 8, 128, true, 1024},
    {3, 1000, 3001, 12, 4, 128, true},
};
/// Of head dimensions that only forward has in warpgroups.
constexpr Shape forward_alone[] = {
    {1, 8192, 8192, 64, 8, 96, true},
    {1, 8192, 8192, 64, 8, 96},
    {1, 8192, 8192, 32, 8, 256, true},
    {1, 8192, 8192, 32, 8, 256},
};

/// Backward in f32 is about a tenth as fast: fewer heads.
constexpr Shape float_sequences[] = {
    {1, 8192, 8192, 8, 1, 128, true},
    {1, 8192, 8192, 8, 1, 128},
    {1, 8192, 8192, 8, 1, 64, true},
    {1, 4096, 4096, 8, 2, 96, true, 1024},
};

/// Both where the device has the first.
template <class K>
std::vector<K> kernels_here(const K& of_warpgroups, const K& of_warps) {
  if (has_warpgroups()) return {of_warpgroups, of_warps};
  say_skipped_in_part("cuda_wgmma needs a device of compute capability 9.0");
  return {of_warps};
}

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_of_long_sequences, T, Halves) {
  const std::vector<Forward> kernels = kernels_here(wgmma, mma);
  for (const Shape& s : long_sequences) check_forward_kernels<T>(s, kernels);
  for (const Shape& s : forward_alone) check_forward_kernels<T>(s, kernels);
}

BOOST_AUTO_TEST_CASE(forward_of_long_sequences_of_floats) {
  for (const Shape& s : long_sequences) check_forward_kernels<float>(s, {tf32x3});
  for (const Shape& s : forward_alone)
    if (s.head_dim <= Impl::cuda::most_float_features) check_forward_kernels<float>(s, {tf32x3});
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_of_long_sequences, T, Halves) {
  const std::vector<Backward> kernels = kernels_here(wgmma_backward, mma_backward);
  for (const Shape& s : long_sequences) check_backward_kernels<T>(s, kernels);
}

BOOST_AUTO_TEST_CASE(backward_of_long_sequences_of_floats) {
  for (const Shape& s : float_sequences) check_backward_kernels<float>(s, {tf32x3_backward});
}

BOOST_AUTO_TEST_CASE(decoding) {
  for (const Shape& s : {Shape{1, 1, 8192, 64, 8, 128, true},
                         {1, 1, 131072, 32, 8, 128, true},
                         {64, 1, 8192, 32, 8, 128, true},
                         {8, 1, 4096, 32, 32, 64, true}})
    check_forward_kernels<bf16>(s, {decode});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
