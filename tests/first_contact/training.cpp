// SPDX-License-Identifier: MIT
// The cases of cross entropy, AdamW and the norm of gradients.
#include <cmath>

#include "first_contact/array.hpp"
#include "first_contact/report.hpp"
#include "ops/adamw/batches.hpp"
#include "ops/adamw/cuda/arguments.hpp"
#include "ops/adamw/reference.hpp"
#include "ops/cross_entropy/cuda/arguments.hpp"
#include "ops/cross_entropy/reference.hpp"

namespace kformer::FirstContact {

namespace {

namespace cuda = Impl::cuda;
namespace ref = Impl::reference;

template <class T>
void check_losses(Report& report, const CrossEntropyOptions& options, const std::string& kind) {
  constexpr std::int64_t rows = 6, vocabulary = 4099;  // rows that begin anywhere between 16 bytes
  const std::string forward = "cross_entropy_forward[cuda_chunks]",
                    backward = "cross_entropy_backward[cuda_chunks]",
                    what = std::string(to_string(dtype_of<T>)) + kind;
  if (!report.wants(forward, what) && !report.wants(backward, what)) return;
  std::mt19937 generator(5);
  Array<T> logits({rows, vocabulary}), dlogits({rows, vocabulary});
  Array<std::int32_t> targets({rows});
  Array<float> loss({rows}), lse({rows}), dloss({rows});
  logits.random(generator, 2), dloss.random(generator, 0.3, 1);
  targets.fill(
      [&](std::size_t i) { return i == 3 ? options.ignore_index : static_cast<std::int32_t>(i * 601); });
  using N = naive_t<T>;
  const auto x = logits.template read<N>(), target = targets.template read<N>();
  const auto naive = ref::cross_entropy_forward<N>(x, target, options);
  const cuda::CrossEntropyArguments a{logits.data(),
                                      vocabulary,
                                      vocabulary,
                                      targets.data(),
                                      loss.data(),
                                      lse.data(),
                                      dloss.data(),
                                      dlogits.data(),
                                      vocabulary,
                                      options.ignore_index,
                                      options.label_smoothing,
                                      options.z_loss,
                                      options.softcap};
  if (report.wants(forward, what))
    report.check(
        forward, what, [&] { cuda::cross_entropy_forward({}, dtype_of<T>, rows, a); },
        [&] { return first_of({loss.judge("loss", naive.loss), lse.judge("lse", naive.lse)}); });
  if (!report.wants(backward, what)) return;
  lse.fill([&](std::size_t i) { return static_cast<float>(naive.lse.values()[i].value()); });
  const auto gradient =
      ref::cross_entropy_backward<N, T>(x, target, lse.template read<N>(), dloss.template read<N>(), options);
  report.check(
      backward, what, [&] { cuda::cross_entropy_backward({}, dtype_of<T>, rows, a); },
      [&] { return dlogits.judge("dlogits", gradient); });
}

/// `f.operator()<T>()` for all storage types.
template <class F>
void with_all_types(F f) {
  with_types(f);
  f.template operator()<double>();
}

/// An array in pieces.
cuda::AdamWPieces pieces_of(const Impl::host::AdamWItem& item) {
  cuda::AdamWPieces all{};
  all.count = 1;
  all.pieces = (item.size + cuda::adamw_piece_elements - 1) / cuda::adamw_piece_elements;
  all.items[0] = item;
  return all;
}

constexpr std::int64_t parameters = 2 * cuda::adamw_piece_elements + 17;

/// m or v as numbers.
template <class C>
struct PlainState {
  Array<C> numbers{std::vector<std::int64_t>{parameters}};

  void fill(const HostTensor<double>& x) {
    numbers.fill([&](std::size_t i) { return x.values()[i]; });
  }
  template <class Real>
  HostTensor<Real> read() {
    return numbers.template read<Real>();
  }
  static HostTensor<C> kept(const HostTensor<C>& x) { return x; }
  template <class Real>
  std::string judge(const char* name, const HostTensor<Real>& exact, const HostTensor<C>& naive) {
    return numbers.judge(name, exact, naive);
  }
  void* data() const { return numbers.data(); }
  float* scale() const { return nullptr; }
};

/// m or v in 8 bits per number.
template <Impl::MapSign sign>
struct CodedState {
  Array<std::uint8_t> codes{std::vector<std::int64_t>{parameters}};
  Array<float> scales{std::vector<std::int64_t>{(parameters + adamw_block - 1) / adamw_block}};

  void fill(const HostTensor<double>& x) {
    const auto coded = ref::encode<double, sign>(x);
    codes.fill([&](std::size_t i) { return coded.codes.values()[i]; });
    scales.fill([&](std::size_t i) { return coded.scales.values()[i]; });
  }
  template <class Real>
  HostTensor<Real> read() {
    return ref::decode<Real, sign>({codes.template read<Real>(), scales.template read<Real>()});
  }
  static HostTensor<float> kept(const HostTensor<float>& x) {
    return ref::decode<float, sign>(ref::encode<float, sign>(x));
  }
  std::string judge(const char* name, const HostTensor<double>& exact, const HostTensor<float>& naive) {
    const Testing::Comparison c = Testing::compare_as(DType::f32, read<double>(), exact, naive);
    if (!c.ok) return std::string(name) + ": " + c.report;
    return first_of({codes.judge_outside(name), scales.judge_outside(name)});
  }
  void* data() const { return codes.data(); }
  float* scale() const { return scales.data(); }
};

/// `step` with m and v in these states.
template <class T, class M, class V, class Step>
void check_step(Report& report, const std::string& kernel, Step step) {
  using C = compute_t<T>;
  using R = Testing::oracle_t<T>;
  const std::string what = to_string(dtype_of<T>);
  if (!report.wants(kernel, what)) return;
  constexpr bool has_master = sizeof(T) == 2;
  std::mt19937 generator(6);
  Array<T> weight({parameters});
  Array<C> gradient({parameters}), master({parameters});
  M m;
  V v;
  gradient.random(generator), master.random(generator);
  if (!has_master) weight.random(generator);
  std::normal_distribution<double> normal(0, 0.3);
  std::uniform_real_distribution<double> uniform(0, 1);  // a mean square is at least the square of the mean
  HostTensor<double> mean({parameters}), square({parameters});
  for (std::size_t i = 0; i < mean.values().size(); ++i) {
    const double x = normal(generator);
    mean.values()[i] = x, square.values()[i] = x * x + uniform(generator);
  }
  m.fill(mean), v.fill(square);
  const AdamWOptions options{.learning_rate = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .step = 7};
  const auto stepped = [&]<class Real>() {
    ref::AdamWState<Real> s{has_master ? master.template read<Real>() : weight.template read<Real>(),
                            gradient.template read<Real>(), m.template read<Real>(), v.template read<Real>(),
                            0.1};
    ref::adamw<Real>(s, options, nullptr);
    return s;
  };
  const auto exact = stepped.template operator()<R>();
  const auto naive = stepped.template operator()<C>();
  auto naive_weight = naive.weight;
  for (C& w : naive_weight.values()) w = Impl::stored<T>(w);
  const Impl::host::AdamWItem item{weight.data(), gradient.data(), has_master ? master.data() : nullptr,
                                   m.data(),      v.data(),        m.scale(),
                                   v.scale(),     parameters,      0.1};
  report.check(
      kernel, what,
      [&] { step({}, dtype_of<T>, pieces_of(item), Impl::adamw_numbers(options), {nullptr, 1, 0}); },
      [&] {
        return first_of({m.judge("m", exact.m, M::kept(naive.m)), v.judge("v", exact.v, V::kept(naive.v)),
                         weight.judge("weight", exact.weight, naive_weight),
                         has_master ? master.judge("master", exact.weight, naive.weight) : std::string()});
      });
}

template <class C>
void check_norm(Report& report) {
  using R = Testing::oracle_t<C>;
  const std::string kernel = "gradient_norm[cuda_chunks]", what = to_string(dtype_of<C>);
  if (!report.wants(kernel, what)) return;
  std::mt19937 generator(7);
  Array<C> gradient({parameters}), norm({1});
  gradient.random(generator);
  const auto exact = ref::gradient_norm<R>({gradient.template read<R>()});
  const auto naive = ref::gradient_norm<C>({gradient.template read<C>()});
  Impl::host::AdamWItem item{};
  item.gradient = gradient.data(), item.size = parameters;
  const cuda::AdamWPieces pieces = pieces_of(item);
  Array<double> sums({pieces.pieces});
  report.check(
      kernel, what,
      [&] {
        cuda::gradient_squares({}, dtype_of<C>, pieces, sums.data());
        cuda::gradient_root({}, dtype_of<C>, sums.data(), pieces.pieces, norm.data());
      },
      [&] { return norm.judge("norm", HostTensor<R>({1}, exact), HostTensor<C>({1}, naive)); });
}

}  // namespace

void check_cross_entropy(Report& report) {
  with_types([&]<class T>() {
    check_losses<T>(report, {}, "");
    check_losses<T>(report, {.label_smoothing = 0.25, .z_loss = 1e-2, .softcap = 30},
                    " smoothing, z-loss, soft cap");
  });
}

void check_adamw(Report& report) {
  with_all_types([&]<class T>() {
    using Number = PlainState<compute_t<T>>;
    check_step<T, Number, Number>(report, "adamw[cuda_chunks]", cuda::adamw_step);
    if constexpr (sizeof(T) < sizeof(double))
      check_step<T, CodedState<Impl::MapSign::with>, CodedState<Impl::MapSign::without>>(
          report, "adamw_coded[cuda_chunks]", cuda::adamw_coded_step);
  });
  check_norm<float>(report);
  check_norm<double>(report);
}

}  // namespace kformer::FirstContact
