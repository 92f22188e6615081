// SPDX-License-Identifier: MIT
// The cases of the embedding, RMSNorm, the rotary embedding and SwiGLU.
#include "first_contact/array.hpp"
#include "first_contact/report.hpp"
#include "ops/embedding/cuda/arguments.hpp"
#include "ops/embedding/reference.hpp"
#include "ops/rms_norm/cuda/arguments.hpp"
#include "ops/rms_norm/reference.hpp"
#include "ops/rope/cuda/arguments.hpp"
#include "ops/rope/reference.hpp"
#include "ops/swiglu/cuda/arguments.hpp"
#include "ops/swiglu/reference.hpp"

namespace kformer::FirstContact {

namespace {

namespace cuda = Impl::cuda;
namespace ref = Impl::reference;
using Impl::host::InputRows, Impl::host::OutputRows;

template <class T>
std::string rows_of(std::int64_t rows, std::int64_t row) {
  return std::string(to_string(dtype_of<T>)) + ' ' + std::to_string(rows) + " x " + std::to_string(row);
}

template <class T>
void check_gradient(Report& report, std::int64_t rows, std::int64_t vocabulary, std::int64_t hidden) {
  const std::string kernel = "embedding_backward[cuda_vector]",
                    what = rows_of<T>(rows, hidden) + ", " + std::to_string(vocabulary) + " ids";
  if (!report.wants(kernel, what)) return;
  std::mt19937 generator(13);
  Array<std::int32_t> ids({rows});
  Array<T> dy({rows, hidden});
  Array<float> dweight({vocabulary, hidden});
  // Beyond the vocabulary either way, too.
  std::uniform_int_distribution<std::int32_t> any(-1, static_cast<std::int32_t>(vocabulary));
  ids.fill([&](std::size_t) { return any(generator); });
  dy.random(generator), dweight.random(generator);
  using N = naive_t<T>;
  const auto naive =
      ref::embedding_backward(ids.template read<N>(), dy.template read<N>(), dweight.template read<N>());
  report.check(
      kernel, what,
      [&] {
        cuda::embedding_backward({}, dtype_of<T>,
                                 {ids.data(),
                                  {dy.data(), hidden},
                                  dweight.data(),
                                  hidden,
                                  rows,
                                  vocabulary,
                                  hidden,
                                  cuda::embedding_classes});
      },
      [&] { return dweight.judge("dweight", naive); });
}

template <class T>
void check_norm_forward(Report& report, std::int64_t rows, std::int64_t hidden) {
  const std::string kernel = "rms_norm_forward[cuda_vector]", what = rows_of<T>(rows, hidden);
  if (!report.wants(kernel, what)) return;
  std::mt19937 generator(1);
  Array<T> x({rows, hidden}), residual({rows, hidden}), weight({hidden}), sum({rows, hidden}),
      y({rows, hidden});
  Array<float> rstd({rows});
  x.random(generator), residual.random(generator, 3), weight.random(generator, 0.3, 1);
  using N = naive_t<T>;
  const auto naive = ref::rms_norm_forward<N, T>(x.template read<N>(), residual.template read<N>(),
                                                 weight.template read<N>(), 1e-5);
  report.check(
      kernel, what,
      [&] {
        cuda::rms_norm_forward({}, dtype_of<T>,
                               {{x.data(), hidden},
                                {residual.data(), hidden},
                                weight.data(),
                                {sum.data(), hidden, false},
                                {y.data(), hidden, false},
                                rstd.data(),
                                hidden,
                                1e-5},
                               rows);
      },
      [&] {
        return first_of({y.judge("y", naive.y), sum.judge("sum", naive.sum), rstd.judge("rstd", naive.rstd)});
      });
}

template <class T>
void check_norm_backward(Report& report, std::int64_t rows, std::int64_t hidden) {
  const std::string kernel = "rms_norm_backward[cuda_vector]", what = rows_of<T>(rows, hidden);
  if (!report.wants(kernel, what)) return;
  std::mt19937 generator(2);
  Array<T> x({rows, hidden}), weight({hidden}), dy({rows, hidden}), dsum({rows, hidden}), dx({rows, hidden});
  constexpr std::int64_t rows_per_block = 8;
  const std::int64_t blocks = (rows + rows_per_block - 1) / rows_per_block;
  Array<float> rstd({rows}), dweight({hidden}), partial({blocks, hidden});
  x.random(generator), weight.random(generator, 0.3, 1), dy.random(generator), dsum.random(generator);
  dweight.fill([](std::size_t) { return 0.0f; });
  const auto saved = ref::rms_norm_forward<double, double>(x.template read<double>(), {},
                                                           weight.template read<double>(), 1e-5);
  rstd.fill([&](std::size_t i) { return static_cast<float>(saved.rstd.values()[i]); });
  using N = naive_t<T>;
  const auto naive =
      ref::rms_norm_backward<N, T>(x.template read<N>(), weight.template read<N>(), rstd.template read<N>(),
                                   dy.template read<N>(), dsum.template read<N>());
  report.check(
      kernel, what,
      [&] {
        cuda::rms_norm_backward({}, dtype_of<T>,
                                {{x.data(), hidden},
                                 weight.data(),
                                 rstd.data(),
                                 {dy.data(), hidden},
                                 {dsum.data(), hidden},
                                 {dx.data(), hidden, false},
                                 partial.data(),
                                 dweight.data(),
                                 rows,
                                 hidden,
                                 rows_per_block,
                                 blocks});
      },
      [&] { return first_of({dx.judge("dx", naive.dx), dweight.judge("dweight", naive.dweight)}); });
}

template <class T>
void check_rotation(Report& report, RopeLayout layout, int direction) {
  constexpr std::int64_t batch = 2, tokens = 13, q_heads = 5, k_heads = 2, half = 32, table_rows = 60,
                         first = 3;
  const std::string kernel = direction > 0 ? "rope_forward[cuda_vector]" : "rope_backward[cuda_vector]",
                    what = std::string(to_string(dtype_of<T>)) +
                           (layout == RopeLayout::half_split ? " half_split" : " interleaved");
  if (!report.wants(kernel, what)) return;
  std::mt19937 generator(3);
  Array<T> q({batch, tokens, q_heads, 2 * half}), k({batch, tokens, k_heads, 2 * half});
  q.random(generator), k.random(generator, 3);
  const auto tables = ref::rope_tables<double, double>(table_rows, half, {});
  Array<float> cos({table_rows, half}), sin({table_rows, half});
  cos.fill([&](std::size_t i) { return static_cast<float>(tables.cos.values()[i]); });
  sin.fill([&](std::size_t i) { return static_cast<float>(tables.sin.values()[i]); });
  using N = naive_t<T>;
  const auto rotated = [&](Array<T>& x) {
    return ref::rope_rotate<N, T>(x.template read<N>(), cos.template read<N>(), sin.template read<N>(), {},
                                  first, layout, direction);
  };
  const auto naive_q = rotated(q), naive_k = rotated(k);
  const auto heads = [](Array<T>& x, std::int64_t n) {
    return cuda::RopeHeads{x.data(), tokens * n * 2 * half, n * 2 * half, 2 * half, n};
  };
  report.check(
      kernel, what,
      [&] {
        cuda::rope_rotate(kernel.c_str(), {}, dtype_of<T>, layout == RopeLayout::half_split,
                          {heads(q, q_heads),
                           heads(k, k_heads),
                           {cos.data(), half},
                           {sin.data(), half},
                           table_rows,
                           half,
                           tokens,
                           nullptr,
                           0,
                           first,
                           direction},
                          batch * tokens);
      },
      [&] { return first_of({q.judge("q", naive_q), k.judge("k", naive_k)}); });
}

template <class T>
void check_gates(Report& report, std::int64_t rows, std::int64_t hidden) {
  const std::string forward = "swiglu_forward[cuda_vector]", backward = "swiglu_backward[cuda_vector]",
                    what = rows_of<T>(rows, hidden);
  if (!report.wants(forward, what) && !report.wants(backward, what)) return;
  std::mt19937 generator(4);
  const auto matrix = [&] { return std::vector<std::int64_t>{rows, hidden}; };
  Array<T> gate(matrix()), up(matrix()), dy(matrix()), y(matrix()), dgate(matrix()), dup(matrix());
  gate.random(generator, 2), up.random(generator), dy.random(generator);
  using N = naive_t<T>;
  const auto naive = ref::swiglu_forward<N, T>(gate.template read<N>(), up.template read<N>());
  const auto gradients =
      ref::swiglu_backward<N, T>(gate.template read<N>(), up.template read<N>(), dy.template read<N>());
  const auto in = [&](Array<T>& a) { return InputRows{a.data(), hidden}; };
  const auto out = [&](Array<T>& a) { return OutputRows{a.data(), hidden, false}; };
  if (report.wants(forward, what))
    report.check(
        forward, what, [&] { cuda::swiglu_forward({}, dtype_of<T>, {in(gate), in(up), out(y)}, rows, hidden); },
        [&] { return y.judge("y", naive); });
  if (report.wants(backward, what))
    report.check(
        backward, what,
        [&] {
          cuda::swiglu_backward({}, dtype_of<T>, {in(gate), in(up), in(dy), out(dgate), out(dup)}, rows,
                                hidden);
        },
        [&] { return first_of({dgate.judge("dgate", gradients.dgate), dup.judge("dup", gradients.dup)}); });
}

}  // namespace

// Rows of one warp, of a block and of the longest kind, and blocks that are not full.
void check_rms_norm(Report& report) {
  with_types([&]<class T>() {
    for (const std::int64_t hidden : {64, 3072, 8192}) {
      check_norm_forward<T>(report, 19, hidden);
      check_norm_backward<T>(report, 19, hidden);
    }
  });
}

void check_rope(Report& report) {
  with_types([&]<class T>() {
    for (const int direction : {+1, -1})
      for (const RopeLayout layout : {RopeLayout::half_split, RopeLayout::interleaved})
        check_rotation<T>(report, layout, direction);
  });
}

void check_swiglu(Report& report) {
  with_types([&]<class T>() { check_gates<T>(report, 75, 120); });
}

void check_embedding(Report& report) {
  with_types([&]<class T>() {
    check_gradient<T>(report, 1300, 3, 72);
    check_gradient<T>(report, 1300, 1700, 1096);
  });
}

}  // namespace kformer::FirstContact
