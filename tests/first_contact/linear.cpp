// SPDX-License-Identifier: MIT
// The cases of products of few rows.
#include "first_contact/array.hpp"
#include "first_contact/report.hpp"
#include "ops/linear/cuda/dot_arguments.hpp"
#include "ops/linear/reference.hpp"

namespace kformer::FirstContact {

namespace {

namespace cuda = Impl::cuda;
namespace ref = Impl::reference;

template <class T>
void check_product(Report& report, std::int64_t rows, std::int64_t in, std::int64_t out) {
  const std::string kernel = "linear_forward[cuda_dots]",
                    what = std::string(to_string(dtype_of<T>)) + ' ' + std::to_string(rows) + " x " +
                           std::to_string(in) + " to " + std::to_string(out);
  if (!report.wants(kernel, what)) return;
  std::mt19937 generator(12);
  Array<T> x({rows, in}), weight({out, in}), residual({rows, out}), y({rows, out});
  x.random(generator), weight.random(generator, 0.3), residual.random(generator, 3);
  constexpr double scale = -0.75;
  using N = naive_t<T>;
  const auto naive = ref::linear_forward<N, T>(x.template read<N>(), weight.template read<N>(), {},
                                               residual.template read<N>(), N(scale));
  report.check(
      kernel, what,
      [&] {
        cuda::linear_dots({}, dtype_of<T>,
                          {{x.data(), in},
                           {weight.data(), in},
                           {residual.data(), out},
                           {y.data(), out, false},
                           rows,
                           in,
                           out,
                           static_cast<float>(scale)});
      },
      [&] { return y.judge("y", naive); });
}

}  // namespace

void check_linear(Report& report) {
  // Parts of the rows of W that share a block of threads, and rounds of its threads that are not full.
  with_types([&]<class T>() {
    for (std::int64_t rows = 1; rows <= cuda::linear_dot_rows; ++rows) check_product<T>(report, rows, 4168, 23);
    check_product<T>(report, 1, 16, 3);
  });
}

}  // namespace kformer::FirstContact
