// SPDX-License-Identifier: MIT
// The CUDA kernels of SwiGLU on emulated blocks, against the reference by the rule.
#include "cuda/aliasing.hpp"
#include "cuda/emulated_kernels.hpp"
#include "ops/swiglu/cuda/entries.hpp"
#include "ops/swiglu_cases.hpp"

namespace kformer::Testing {
using namespace swiglu_cases;

BOOST_AUTO_TEST_SUITE(swiglu_emulated)

constexpr auto forward_kernel = Impl::cuda::SwigluForwardEntry<Exec>::entry();
constexpr auto backward_kernel = Impl::cuda::SwigluBackwardEntry<Exec>::entry();
constexpr EmulatedKernels emulated(forward_kernel, backward_kernel);

// Rows of one chunk and of more than a block has, blocks that are not full.
const std::vector<RowShape> shapes{{1, 8}, {5, 16}, {75, 120}, {3, 4104}, {0, 8}, {3, 0}};

BOOST_AUTO_TEST_CASE_TEMPLATE(both_directions_match_the_oracle, T, UpToFloat) {
  for (const double scale : {2.0, 300.0})
    for (const RowShape shape : shapes) {
      test_forward<T>(shape, scale, Rows::aligned, emulated);
      test_backward<T>(shape, scale, Rows::aligned, emulated);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(outputs_may_be_inputs, T, UpToFloat) {
  for (const RowShape shape : {RowShape{5, 16}, RowShape{3, 4104}}) {
    Tensors<T> t(shape, 2.0, Rows::aligned);
    const Impl::SwigluForward forward{t.gate.ref(), t.up.ref(), t.y.ref()};
    for (auto* input : {&t.gate, &t.up}) {
      Impl::SwigluForward problem = forward;
      problem.y = input->ref();
      check_aliasing(forward_kernel, forward, t.y, problem, *input, {});
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_may_be_inputs, T, UpToFloat) {
  using Member = TestTensor<Exec, T> Tensors<T>::*;
  const auto gradients = [](Member dgate, Member dup) {
    const Tensors<T> t({5, 16}, 2.0, Rows::aligned);
    backward_kernel.run(Exec(), {t.gate.ref(), t.up.ref(), t.dy.ref(), (t.*dgate).ref(), (t.*dup).ref()}, {});
    Exec().fence("kformer::Testing::swiglu");
    return std::pair((t.*dgate).bits(), (t.*dup).bits());
  };
  const auto expected = gradients(&Tensors<T>::dgate, &Tensors<T>::dup);
  const std::vector<Member> inputs{&Tensors<T>::gate, &Tensors<T>::up, &Tensors<T>::dy};
  for (const Member dgate : inputs)
    for (const Member dup : inputs)
      if (dgate != dup) BOOST_TEST((gradients(dgate, dup) == expected));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(gates_of_any_size_give_the_limits, T, UpToFloat) { test_limits<T>(40, emulated); }

BOOST_AUTO_TEST_CASE_TEMPLATE(results_of_16_bits_are_rounded_once, T, Halves) {
  test_rounding<T>(14, emulated);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_nan_stays_in_its_place, T, UpToFloat) {
  test_nan<T>(40, Rows::aligned, emulated);
}

BOOST_AUTO_TEST_CASE(refusals_say_why) {
  const auto refusal = []<class T>(std::type_identity<T>, RowShape shape, Rows rows) {
    const Tensors<T> t(shape, 2.0, rows);
    return backward_kernel.reject({t.gate.ref(), t.up.ref(), t.dy.ref(), t.dgate.ref(), t.dup.ref()});
  };
  const std::type_identity<bf16> half;
  BOOST_TEST(refusal(half, {3, 8}, Rows::aligned) == "");
  BOOST_TEST(refusal(std::type_identity<double>{}, {3, 8}, Rows::aligned) ==
             "operands are stored as f64, but it supports only f32, bf16 and f16");
  BOOST_TEST(refusal(half, {3, 12}, Rows::aligned) == "a row has 24 bytes, which is not a multiple of 16");
  BOOST_TEST(refusal(half, {3, 8}, Rows::strided) ==
             "gate has a stride of 13 elements, which is not a multiple of 16 bytes");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
