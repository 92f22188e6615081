// SPDX-License-Identifier: MIT
// The cases of products with quantised weights, by numbers and by codes of 8 bits.
#include <algorithm>
#include <limits>

#include "first_contact/array.hpp"
#include "first_contact/report.hpp"
#include "ops/linear/reference.hpp"
#include "ops/quantized/cuda/arguments.hpp"
#include "ops/quantized/reference.hpp"

namespace kformer::FirstContact {

namespace {

namespace cuda = Impl::cuda;
namespace ref = Impl::reference;

struct Shape {
  std::int64_t rows, in, out;
};

/// Weights of either sign, block by block.
std::vector<std::uint8_t> quantized_weights(QuantizedFormat format, const Shape& s, std::mt19937& generator) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  HostTensor<float> weights({s.out, s.in});
  for (float& w : weights.values()) w = uniform(generator);
  if (format == QuantizedFormat::nf4) return ref::quantize_nf4(weights);
  std::vector<std::uint8_t> bytes(quantized_bytes(format, s.out, s.in));
  Impl::with_format(format, [&](auto constant) {
    if constexpr (constant() != QuantizedFormat::nf4) {
      using Block = Impl::QuantizedBlock<constant()>;
      std::uint8_t* to = bytes.data();
      for (std::int64_t row = 0; row < s.out; ++row)
        for (std::int64_t first = 0; first < s.in; first += Block::weights, to += Block::bytes) {
          float numbers[Block::weights] = {};
          const std::int64_t count = std::min<std::int64_t>(Block::weights, s.in - first);
          for (std::int64_t i = 0; i < count; ++i) numbers[i] = weights(row, first + i);
          Impl::quantize_block<constant()>(numbers, to);
        }
    }
  });
  return bytes;
}

/// The first `columns` of each row of x, and the same row of `more` beside them.
template <class Real>
HostTensor<Real> beside(const HostTensor<Real>& x, std::int64_t columns, const HostTensor<Real>& more) {
  HostTensor<Real> both({x.extent(0), columns + more.extent(1)});
  for (std::int64_t row = 0; row < both.extent(0); ++row)
    for (std::int64_t i = 0; i < both.extent(1); ++i)
      both(row, i) = i < columns ? x(row, i) : more(row, i - columns);
  return both;
}

template <class T>
void check_product(Report& report, QuantizedFormat format, Activations activations, const Shape& s) {
  const bool is_int8 = activations == Activations::int8;
  const std::string kernel = std::string("quantized_linear_forward[cuda_dots]") + (is_int8 ? " int8" : ""),
                    what = std::string(to_string(dtype_of<T>)) + ' ' + to_string(format) + ' ' +
                           std::to_string(s.rows) + " x " + std::to_string(s.in) + " to " +
                           std::to_string(s.out);
  if (!report.wants(kernel, what)) return;
  std::mt19937 generator(9);
  const std::vector<std::uint8_t> bytes = quantized_weights(format, s, generator);
  Array<std::uint8_t> weight({static_cast<std::int64_t>(bytes.size())});
  weight.fill([&](std::size_t i) { return bytes[i]; });
  // What is between the rows of x stays NaN: no kernel may multiply it.
  const std::int64_t stride = (s.in + 7) / 8 * 8, rank = is_int8 ? 0 : 5;
  Array<T> x({s.rows, stride}), xa({s.rows, rank}), b({s.out, rank}), residual({s.rows, s.out}),
      y({s.rows, s.out});
  using C = compute_t<T>;
  std::normal_distribution<C> normal;
  x.fill([&](std::size_t i) {
    return static_cast<std::int64_t>(i) % stride < s.in ? normal(generator)
                                                        : std::numeric_limits<C>::quiet_NaN();
  });
  xa.random(generator), b.random(generator), residual.random(generator);
  constexpr double scale = -0.75;
  using N = naive_t<T>;
  auto inputs = beside(x.template read<N>(), s.in, xa.template read<N>());
  if (is_int8) inputs = ref::int8_activations<C, N, T>(inputs, Impl::activation_group(format));
  const auto weights =
      ref::dequantize<N, T>({format, reinterpret_cast<const std::byte*>(bytes.data()), s.out, s.in});
  const auto naive = ref::linear_forward<N, T>(inputs, beside(weights, s.in, b.template read<N>()), {},
                                               residual.template read<N>(), N(scale));
  const std::int64_t block = weights_per_block(format), row_blocks = (s.in + block - 1) / block,
                     row_codes = row_blocks * block, row_groups = is_ternary(format) ? 1 : row_codes / 32;
  Array<std::uint8_t> codes({s.rows, row_codes});
  Array<cuda::Int8Activations::Numbers> numbers({s.rows, row_groups});
  const cuda::QuantizedDotArguments a{{x.data(), stride},
                                      {residual.data(), s.out},
                                      {xa.data(), rank},
                                      {b.data(), rank},
                                      {y.data(), s.out, false},
                                      weight.data(),
                                      quantized_row_bytes(format, s.in),
                                      row_blocks,
                                      s.rows,
                                      s.in,
                                      s.out,
                                      rank,
                                      scale,
                                      {codes.data(), numbers.data(), row_codes, row_groups}};
  report.check(
      kernel, what,
      [&] { (is_int8 ? cuda::quantized_int8_dots : cuda::quantized_dots)({}, dtype_of<T>, format, a); },
      [&] {
        return first_of({y.judge("y", naive), codes.judge_outside("codes"), numbers.judge_outside("numbers")});
      });
}

}  // namespace

void check_quantized(Report& report) {
  // A long row, in more passes than the ring of copies has places, and parts of whatever is shared: rows and columns of
  // a block of threads, words, and blocks of weights.
  with_types([&]<class T>() {
    for (const QuantizedFormat format : quantized_formats)
      for (const Shape& s : {Shape{1, 20001, 3}, Shape{6, 1091, 11}}) {
        check_product<T>(report, format, Activations::full, s);
        if (has_integer_codes(format)) check_product<T>(report, format, Activations::int8, s);
      }
  });
}

}  // namespace kformer::FirstContact
