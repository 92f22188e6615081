// SPDX-License-Identifier: MIT
// The kernels of `linear` for AMX on emulated tiles, with the vectors of each instruction set of this
// processor.
#include <cmath>
#include <cstring>
#include <vector>

#include "ops/linear/host/amx/products.hpp"
#include "ops/linear_cases.hpp"
#include "ops/linear_epilogues/host_entries.hpp"
#include "ops/lora/host/entries.hpp"
#include "support/draws.hpp"
#include "support/emulated_amx/kernels.hpp"
#include "support/emulated_amx/tiles.hpp"

namespace kformer::Testing {
using namespace linear_cases;
using kformer::Impl::host::Isa;
using kformer::Impl::host::LinearKernels;

BOOST_AUTO_TEST_SUITE(linear_amx)

namespace {

/// `f.operator()<isa>()` for the instruction sets that the emulated kernels are compiled for and this
/// processor has.
template <class F>
void for_each_isa(F f) {
  const auto run = [&]<Isa isa>() {
    if constexpr (kformer::Impl::host::is_built<isa>)
      if (kformer::Impl::host::processor_refusal<isa>().empty())
        BOOST_TEST_CONTEXT(kformer::Impl::host::simd_entry<isa>) f.template operator()<isa>();
  };
  run.template operator()<Isa::generic>();
  run.template operator()<Isa::avx2>();
  run.template operator()<Isa::avx512>();
}

template <class P>
bool has_terms(const P& p) {
  bool terms = false;
  kformer::Impl::with_product(p, [&](const auto& q) { terms = q.batches * q.rows * q.cols * q.inner > 0; });
  return terms;
}

/// As `AmxProducts`.
template <Isa isa>
struct EmulatedProducts {
  static constexpr Isa vectors = isa;
  static constexpr const char* name = "emulated_amx";
  static std::string refusal(DType) { return {}; }
  static const LinearKernels& kernels(DType) { return emulated_amx::linear_kernels<isa>(); }
};
template <class P, Isa isa>
using EmulatedEntry = kformer::Impl::host::LinearEntry<P, Exec, EmulatedProducts<isa>>;

/// As `every_kernel`, of the emulated ones. Few rows come to tiles, too.
constexpr auto emulated = [](auto problem, const std::vector<Output*>& outputs,
                             const std::function<void(const std::string&)>& verify) {
  using P = decltype(problem);
  problem.options.batch_invariant = true;
  for_each_isa([&]<Isa isa>() {
    const Kernel<P, Exec> kernel = EmulatedEntry<P, isa>::entry();
    const std::int64_t before = emulated_amx::configurations();
    test_kernels<P>({&kernel, 1}, problem, outputs, verify);
    BOOST_TEST(emulated_amx::threads_in_use() == 0, "a thread did not release its tiles");
    BOOST_TEST((before < emulated_amx::configurations()) == has_terms(problem));
  });
};

// Ends of tiles and of steps in each extent beside whole ones; sums longer than what is packed at a time;
// several tiles of the result; what has no elements or no terms.
const std::vector<Shape> shapes{{1, 1, 1},      {1, 31, 1},    {1, 32, 16},    {1, 33, 17},  {16, 32, 16},
                                {17, 1, 33},    {33, 31, 15},  {48, 64, 64},   {3, 1025, 5}, {40, 513, 70},
                                {65, 129, 130}, {20, 70, 410}, {530, 70, 40},  {0, 8, 3},    {4, 0, 3},
                                {4, 3, 0},      {3, 5, 7, 1},  {33, 45, 18, 3}};
constexpr Rows both_rows[] = {Rows::strided, Rows::packed};

}  // namespace

BOOST_AUTO_TEST_CASE(forward_matches_the_oracle) {
  for (const Shape shape : shapes)
    for (const Rows rows : both_rows)
      test_forward(Tensors<bf16>(shape, rows), rows == Rows::packed ? Added::bias : Added::residual, -0.75,
                   emulated);
}

BOOST_AUTO_TEST_CASE(gradients_match_the_oracle) {
  for (const Shape shape : shapes)
    for (const Rows rows : both_rows) {
      test_backward_input(Tensors<bf16>(shape, rows), 0.625, emulated);
      test_backward_weight(Tensors<bf16>(shape, rows), 0.625, emulated);
    }
}

BOOST_AUTO_TEST_CASE(no_kernel_is_rejected) {
  judge_draws<bf16>([](Draw& draw) {
    const Shape shape{draw.any(1, 70), draw.any(1, 120), draw.any(1, 70), draw.one_in(4) ? draw.any(1, 3) : -1};
    const auto tensors = [&] { return Tensors<bf16>(shape, draw.rows(), draw.seed()); };
    test_forward(tensors(), draw.one_of(every_added), 1, emulated);
    test_backward_input(tensors(), 1, emulated);
    test_backward_weight(tensors(), 1, emulated);
  });
}

namespace {

/// Factors of one tile of a result, contiguous along the sum or across it.
struct Factors {
  std::int64_t rows, cols, inner;
  bool left_along, right_along;
  std::vector<bf16> left, right;

  Factors(std::int64_t r, std::int64_t c, std::int64_t k, bool l, bool a, std::mt19937& generator)
      : rows(r), cols(c), inner(k), left_along(l), right_along(a) {
    std::normal_distribution<float> any;
    for (auto* factor : {&left, &right}) {
      factor->resize(static_cast<std::size_t>((factor == &left ? rows : cols) * inner));
      for (bf16& x : *factor) x = bf16(any(generator));
    }
  }

  static kformer::Impl::host::ProductFactor factor(const std::vector<bf16>& data, bool along, std::int64_t n,
                                                   std::int64_t inner) {
    return {data.data(), along ? inner : 1, along ? 1 : n};
  }
  kformer::Impl::host::ProductTerms terms() const {
    return {inner, factor(left, left_along, rows, inner), factor(right, right_along, cols, inner)};
  }

  /// What docs/blocks/linear.md says: steps of 32, in each of them even and odd places apart.
  float add_to(float sum, std::int64_t row, std::int64_t col) const {
    const auto l = [&](std::int64_t k) { return float(left[left_along ? row * inner + k : k * rows + row]); };
    const auto r = [&](std::int64_t k) { return float(right[right_along ? col * inner + k : k * cols + col]); };
    for (std::int64_t step = 0; step < inner; step += 32) {
      float part[2] = {};
      for (std::int64_t k = step; k < std::min(step + 32, inner); ++k)
        part[k % 2] = std::fma(l(k), r(k), part[k % 2]);
      sum += part[0] + part[1];
    }
    return sum;
  }
};

}  // namespace

// More rows than are packed at a time, more terms than are summed at a time, and those of a second product.
BOOST_AUTO_TEST_CASE(sums_have_the_order_of_the_documentation) {
  constexpr int rows = 275, cols = 20;
  std::mt19937 generator(20261129);
  for (const bool left_along : {true, false})
    for (const bool right_along : {true, false}) {
      const Factors first(rows, cols, 549, left_along, right_along, generator);
      const Factors second(rows, cols, 37, right_along, left_along, generator);
      std::vector<float> result(rows * cols);
      kformer::Impl::host::ProductArguments p{};
      p.rows = rows;
      p.inner = first.inner;
      p.left = first.terms().left;
      p.right = first.terms().right;
      p.result = result.data();
      p.row_stride = cols;
      p.alpha = 1;
      p.more = second.terms();
      std::vector<float> expected;
      for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cols; ++c) expected.push_back(second.add_to(first.add_to(0, r, c), r, c));
      for_each_isa([&]<Isa isa>() {
        const LinearKernels& kernels = emulated_amx::linear_kernels<isa>();
        const std::size_t bytes = kernels.scratch(rows, cols), guard = 64;
        const Kokkos::View<unsigned char*, Kokkos::HostSpace> scratch("kformer::Testing::scratch",
                                                                      bytes + guard);
        Kokkos::deep_copy(scratch, 0xff);  // NaN
        kernels.run_summed(p, {0, 0, rows, cols}, scratch.data());
        BOOST_TEST((result == expected));
        for (std::size_t i = bytes; i < bytes + guard; ++i) BOOST_REQUIRE(scratch(i) == 0xff);
      });
    }
}

BOOST_AUTO_TEST_CASE(rows_do_not_depend_on_the_others) {
  constexpr std::int64_t all_rows = 300, in = 530, out = 70;
  std::mt19937 generator(20261130);
  const auto x = TestTensor<Exec, bf16>({all_rows, in}).random(generator);
  const auto weight = TestTensor<Exec, bf16>({out, in}).random(generator);
  for_each_isa([&]<Isa isa>() {
    const auto product = [&](std::int64_t first, std::int64_t count) {
      TestTensor<Exec, bf16> y({count, out}, Rows::packed);
      TensorRef part = x.ref();
      part.data = static_cast<bf16*>(part.data) + first * part.stride[0];
      part.extent[0] = count;
      EmulatedEntry<kformer::Impl::LinearForward, isa>::run(
          Exec(), {part, weight.ref(), {}, {}, y.ref(), {.batch_invariant = true}}, {});
      Exec().fence("kformer::Testing::linear_amx");
      return y.template read<double>().values();
    };
    const auto all = product(0, all_rows);
    for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, 1}, {299, 1}, {7, 3}, {31, 32}, {64, 33}, {90, 100}}) {
      const auto begin = all.begin() + first * out;
      BOOST_TEST((product(first, count) == std::vector<double>(begin, begin + count * out)),
                 "rows from " << first << " on, " << count << " of them");
    }
  });
}

namespace {

template <class Entry, class P>
void run(const P& p) {
  p.check();
  Entry::run(Exec(), p, {});
  Exec().fence("kformer::Testing::linear_amx");
}

// silu(gate)·up of both halves of y, rounded to bf16 once.
void check_activation(const TestTensor<Exec, bf16>& y, const TestTensor<Exec, bf16>& activated) {
  const auto both = y.read<double>(), result = activated.read<double>();
  const std::int64_t cols = activated.ref().extent[1];
  for (std::int64_t row = 0; row < activated.ref().extent[0]; ++row)
    for (std::int64_t col = 0; col < cols; ++col) {
      const double gate = both(row, col), expected = gate / (1 + std::exp(-gate)) * both(row, cols + col);
      // Twice half an ulp, so that what float adds has room beside the rounding.
      BOOST_TEST(std::abs(result(row, col) - expected) <= 0x1p-8 * std::abs(expected),
                 "row " << row << ", column " << col << ": " << result(row, col) << ", not " << expected);
    }
}

}  // namespace

// A decoder multiplies alone what a layer in training multiplies with an activation, a rotation or an
// adapter. Here rotations are by nothing, and adapters add zeros.
BOOST_AUTO_TEST_CASE(products_in_other_blocks_have_the_same_bits) {
  constexpr std::int64_t rows = 70, in = 130, out = 96;
  std::mt19937 generator(20261128);
  const auto x = TestTensor<Exec, bf16>({rows, in}).random(generator);
  const auto weight = TestTensor<Exec, bf16>({out, in}).random(generator);
  const auto adapter = TestTensor<Exec, bf16>({5, in}).random(generator);
  const auto zeros = TestTensor<Exec, bf16>({out, 5}).fill([](std::size_t) { return 0.0F; });
  const auto cos = TestTensor<Exec, float>({rows, 8}).fill([](std::size_t) { return 1; });
  const auto sin = TestTensor<Exec, float>({rows, 8}).fill([](std::size_t) { return 0; });
  TestTensor<Exec, bf16> y({rows, out}), activated({rows, out / 2}), low({rows, 5}), low_alone({rows, 5});
  Impl::LoraFactors factors;
  factors.count = 1;
  factors.part[0] = {zeros.ref(), 0, 1};
  const LinearOptions options{.scale = 0.7, .batch_invariant = true};
  for_each_isa([&]<Isa isa>() {
    using Products = EmulatedProducts<isa>;
    const auto bits_of = [&]<class Entry>(std::type_identity<Entry>, const auto& problem) {
      y.reset();
      run<Entry>(problem);
      return y.bits();
    };
    const auto alone = bits_of(std::type_identity<EmulatedEntry<Impl::LinearForward, isa>>{},
                               Impl::LinearForward{x.ref(), weight.ref(), {}, {}, y.ref(), options});
    const auto swiglu =
        bits_of(std::type_identity<Impl::host::LinearSwigluEntry<Exec, Products>>{},
                Impl::LinearSwigluForward{x.ref(), weight.ref(), y.ref(), activated.ref(), options});
    const auto rope = bits_of(std::type_identity<Impl::host::LinearRopeEntry<Exec, Products>>{},
                              Impl::LinearRopeForward{x.ref(),
                                                      weight.ref(),
                                                      {},
                                                      y.ref(),
                                                      cos.ref(),
                                                      sin.ref(),
                                                      {.heads = 4, .seq_len = rows, .linear = options}});
    BOOST_TEST((swiglu == alone));
    check_activation(y, activated);
    BOOST_TEST((rope == alone));
    const LinearOptions unscaled{.batch_invariant = true};
    const auto product = bits_of(std::type_identity<EmulatedEntry<Impl::LinearForward, isa>>{},
                                 Impl::LinearForward{x.ref(), weight.ref(), {}, {}, y.ref(), unscaled});
    const auto lora = bits_of(std::type_identity<Impl::host::LoraEntry<Impl::LoraForward, Exec, Products>>{},
                              Impl::LoraForward{x.ref(),
                                                weight.ref(),
                                                {},
                                                {},
                                                adapter.ref(),
                                                factors,
                                                low.ref(),
                                                y.ref(),
                                                {.batch_invariant = true}});
    BOOST_TEST((lora == product));
    BOOST_TEST((product != alone));
    run<EmulatedEntry<Impl::LinearForward, isa>>(
        Impl::LinearForward{x.ref(), adapter.ref(), {}, {}, low_alone.ref(), unscaled});
    BOOST_TEST((low.bits() == low_alone.bits()));
    for (TestTensor<Exec, bf16>* output : {&activated, &low, &low_alone}) output->reset();
  });
}

// Which problems it must accept, on which processors, is in support/acceptance.hpp.
BOOST_AUTO_TEST_CASE(the_list_has_it_first_and_says_why_not) {
  const auto list = kernels<Impl::LinearForward, Exec>();
  const std::string name = "simd_amx_bf16";
  BOOST_TEST_REQUIRE(list.front().name == name);
  BOOST_TEST((kernels<Impl::LinearBackwardInput, Exec>().front().name == name));
  BOOST_TEST((kernels<Impl::LinearBackwardWeight, Exec>().front().name == name));
  BOOST_TEST((kernels<Impl::LinearSwigluForward, Exec>().front().name == name));
  BOOST_TEST((kernels<Impl::LinearRopeForward, Exec>().front().name == name));
  BOOST_TEST((kernels<Impl::LoraForward, Exec>().front().name == name));
  BOOST_TEST((kernels<Impl::LoraBackwardInput, Exec>().front().name == name));
  const auto refusal = [&]<class T>(std::type_identity<T>) {
    const Tensors<T> t({40, 8, 40});
    return list.front().reject({t.x.ref(), t.weight.ref(), {}, {}, t.y.ref(), {}});
  };
  BOOST_TEST(refusal(std::type_identity<float>{}) == "operands are stored as f32, but it supports only bf16");
  BOOST_TEST(refusal(std::type_identity<f16>{}) == "operands are stored as f16, but it supports only bf16");
  const std::string vectors = kformer::Impl::host::processor_refusal<Isa::avx512>();
  BOOST_TEST(refusal(std::type_identity<bf16>{}) ==
             (vectors.empty() ? kformer::Impl::host::amx_refusal() : vectors));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
