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
  f.template operator()<float>();
  f.template operator()<bf16>();
  f.template operator()<f16>();
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

template <class T>
void check_step(Report& report) {
  using C = compute_t<T>;
  using R = Testing::oracle_t<T>;
  const std::string kernel = "adamw[cuda_chunks]", what = to_string(dtype_of<T>);
  if (!report.wants(kernel, what)) return;
  constexpr bool has_master = sizeof(T) == 2;
  std::mt19937 generator(6);
  Array<T> weight({parameters});
  Array<C> gradient({parameters}), master({parameters}), m({parameters}), v({parameters});
  gradient.random(generator), m.random(generator, 0.3), master.random(generator);
  if (!has_master) weight.random(generator);
  const auto mean = m.template read<double>();
  std::uniform_real_distribution<double> uniform(0, 1);  // a mean square is at least the square of the mean
  v.fill(
      [&](std::size_t i) { return static_cast<C>(mean.values()[i] * mean.values()[i] + uniform(generator)); });
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
                                   m.data(),      v.data(),        nullptr,
                                   nullptr,       parameters,      0.1};
  report.check(
      kernel, what,
      [&] {
        cuda::adamw_step({}, dtype_of<T>, pieces_of(item), Impl::adamw_numbers(options), {nullptr, 1, 0});
      },
      [&] {
        return first_of({m.judge("m", exact.m, naive.m), v.judge("v", exact.v, naive.v),
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
  const auto all = [&]<class T>() {
    check_losses<T>(report, {}, "");
    check_losses<T>(report, {.label_smoothing = 0.25, .z_loss = 1e-2, .softcap = 30},
                    " smoothing, z-loss, soft cap");
  };
  all.template operator()<float>();
  all.template operator()<bf16>();
  all.template operator()<f16>();
}

void check_adamw(Report& report) {
  with_all_types([&]<class T>() { check_step<T>(report); });
  check_norm<float>(report);
  check_norm<double>(report);
}

}  // namespace kformer::FirstContact
