// SPDX-License-Identifier: MIT
#include "kformer/ops/adamw.hpp"
#include "ops/adamw_cases.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(adamw_errors)

/// Two parameters, the second of which `change` spoils.
template <class T, class Change>
void check_parameter_error(States states, Change change, const std::string& text) {
  AdamWModel<T> model(states, {{4}, {3, 5}});
  model.parameters[1].name = "head";
  change(model.parameters[1]);
  check_error<DimensionMismatch>([&] { kformer::adamw(Exec(), model.parameters); },
                                 "kformer::adamw: parameter 1 (head): " + text);
}
template <class T, class Change>
void check_unsupported(States states, Change change, const std::string& text) {
  AdamWModel<T> model(states, {{4}, {3, 5}});
  change(model.parameters[1]);
  check_error<NotSupported>([&] { kformer::adamw(Exec(), model.parameters); },
                            "kformer::adamw: parameter 1: " + text);
}

BOOST_AUTO_TEST_CASE(extents) {
  TestTensor<Exec, float> narrow({3, 4}, Rows::packed), strided({3, 5}, Rows::strided), one({1}, Rows::packed);
  check_parameter_error<float>(
      States::plain, [&](AdamWParameter& p) { p.gradient = narrow.ref(); },
      "extents do not match: weight[3,5] gradient[3,4] m[3,5] v[3,5]; expected gradient, m and v to have the "
      "extents of weight");
  const std::string expected = "expected gradient, m and v to have the extents of weight; missing: ";
  check_parameter_error<float>(
      States::plain, [](AdamWParameter& p) { p.m = p.v = {}; },
      "extents do not match: weight[3,5] gradient[3,5]; " + expected + "m, v");
  check_parameter_error<float>(
      States::plain, [](AdamWParameter& p) { p.gradient = {}; },
      "extents do not match: weight[3,5] m[3,5] v[3,5]; " + expected + "gradient");
  check_parameter_error<bf16>(
      States::plain, [&](AdamWParameter& p) { p.master = one.ref(); },
      "extents do not match: weight[3,5] gradient[3,5] master[1] m[3,5] v[3,5]; expected master to have the "
      "extents of weight, because the step updates it and the 16-bit weight is its rounding");
  check_parameter_error<float>(
      States::plain, [&](AdamWParameter& p) { p.v = strided.ref(); },
      "v must be dense and row-major, because a step runs over it as one array; its stride along extent 0 is "
      "10, expected 5; use Kokkos::LayoutRight or copy it: weight[3,5] gradient[3,5] m[3,5] v[3,5]");
  check_parameter_error<float>(
      States::coded,
      [&](AdamWParameter& p) {
        p.v_scale = narrow.ref();
        p.v_scale.rank = 1;
        p.v_scale.extent[0] = 2;
        p.v_scale.stride[0] = 1;
      },
      "extents do not match: weight[3,5] gradient[3,5] m[3,5] v[3,5] m_scale[1] v_scale[2]; expected "
      "m_scale[1] "
      "and v_scale[1], one per 256 elements");
}

BOOST_AUTO_TEST_CASE(memory) {
  const std::string lacks =
      " has no memory (null pointer, or a ledger that only counts); allocate it: weight[3,5] gradient[3,5] "
      "m[3,5] v[3,5]";
  check_parameter_error<float>(
      States::plain, [](AdamWParameter& p) { p.weight.data = nullptr; }, "weight" + lacks);
  check_parameter_error<float>(States::plain, [](AdamWParameter& p) { p.v.data = nullptr; }, "v" + lacks);
  check_parameter_error<float>(
      States::coded, [](AdamWParameter& p) { p.m_scale.data = nullptr; },
      "m_scale" + lacks + " m_scale[1] v_scale[1]");
  AdamWModel<float> model(States::plain, {{4}});
  model.parameters[0].gradient.data = nullptr;
  const TestTensor<Exec, float> norm({1}, Rows::packed);
  const std::string gradient =
      "gradient has no memory (null pointer, or a ledger that only counts); allocate it: ";
  check_error<DimensionMismatch>([&] { gradient_norm(Exec(), model.parameters, norm.view<1>()); },
                                 "kformer::gradient_norm: parameter 0: " + gradient + "gradient[4]");
  check_error<DimensionMismatch>(
      [&] { kformer::adamw(Exec(), model.parameters, norm.view<1>()); },
      "kformer::adamw: parameter 0: " + gradient + "weight[4] gradient[4] m[4] v[4]");
}

BOOST_AUTO_TEST_CASE(shared_memory) {
  const std::string separate =
      "; pass a separate View: weight[3,5] gradient[3,5] m[3,5] v[3,5] m_scale[1] v_scale[1]";
  check_parameter_error<float>(
      States::coded, [](AdamWParameter& p) { p.v_scale = p.m_scale; },
      "m_scale shares memory with v_scale" + separate);
  check_parameter_error<float>(
      States::coded, [](AdamWParameter& p) { p.v_scale.data = p.gradient.data; },
      "v_scale shares memory with gradient" + separate);
  const AdamWModel<float> model(States::plain, {{4}});
  const Kokkos::View<float*, Kokkos::LayoutRight, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      norm(static_cast<float*>(model.parameters[0].gradient.data), 1);
  check_error<DimensionMismatch>(
      [&] { gradient_norm(Exec(), model.parameters, norm); },
      "kformer::gradient_norm: parameter 0: norm shares memory with gradient; pass a "
      "separate View: gradient[4] norm[1]");
}

BOOST_AUTO_TEST_CASE(storage_types) {
  TestTensor<Exec, bf16> half({3, 5}, Rows::packed);
  check_parameter_error<float>(
      States::plain, [&](AdamWParameter& p) { p.gradient = half.ref(); },
      "gradient is stored as bf16, expected f32: weight[3,5] gradient[3,5] m[3,5] v[3,5]");
  check_parameter_error<float>(
      States::coded, [&](AdamWParameter& p) { p.v = half.ref(); },
      "v is stored as bf16, expected u8: weight[3,5] gradient[3,5] m[3,5] v[3,5] m_scale[1] v_scale[1]");
  check_unsupported<float>(
      States::plain, [&](AdamWParameter& p) { p.master = p.m; },
      "a master weight is for 16-bit weights, but this one is f32; leave it out");
  TestTensor<Exec, float> scales({3, 5}, Rows::packed);
  check_unsupported<float>(
      States::plain, [&](AdamWParameter& p) { p.m_scale = scales.ref(); },
      "m_scale and v_scale belong to 8-bit states, but m and v are f32; leave them out");
  TestTensor<Exec, std::uint8_t> codes({3, 5}, Rows::packed), more_codes({3, 5}, Rows::packed);
  check_unsupported<double>(
      States::plain, [&](AdamWParameter& p) { p.m = codes.ref(), p.v = more_codes.ref(); },
      "8-bit states are for 32-bit and 16-bit weights; give double weights double states");
  check_unsupported<float>(
      States::plain, [&](AdamWParameter& p) { p.weight = codes.ref(); },
      "weight is stored as u8; use f32, bf16, f16 or f64");
}

BOOST_AUTO_TEST_CASE(options) {
  const AdamWModel<float> model(States::plain, {{4}});
  const auto check = [&](const AdamWOptions& options, const std::string& text) {
    check_error<NotSupported>([&] { kformer::adamw(Exec(), model.parameters, options); },
                              "kformer::adamw: " + text);
  };
  constexpr double infinity = std::numeric_limits<double>::infinity();
  check({.learning_rate = infinity}, "learning_rate must be finite and not negative, got inf");
  check({.learning_rate = -0.5}, "learning_rate must be finite and not negative, got -0.5");
  check({.beta1 = 1}, "beta1 and beta2 must be at least 0 and less than 1, got 1 and 0.999");
  check({.beta2 = -0.1}, "beta1 and beta2 must be at least 0 and less than 1, got 0.9 and -0.1");
  check({.eps = 1e-39},
        "eps must be finite and at least 1.17549e-38, the smallest normal float, because it prevents 0 / 0; "
        "got 1e-39");
  check({.eps = infinity},
        "eps must be finite and at least 1.17549e-38, the smallest normal float, because it prevents 0 / 0; "
        "got inf");
  check({.step = 0}, "steps count from 1, got step 0");
  check({.gradient_scale = 0}, "gradient_scale must be finite and positive, got 0");
  check({.gradient_scale = infinity}, "gradient_scale must be finite and positive, got inf");
  check({.max_norm = -1}, "max_norm must not be negative, got -1");
  check({.max_norm = 1}, "max_norm needs the norm of the gradients; pass what gradient_norm has written");
  check_unsupported<float>(
      States::plain, [](AdamWParameter& p) { p.weight_decay = -1; },
      "weight_decay must be finite and not negative, got -1");
  check_unsupported<float>(
      States::plain, [=](AdamWParameter& p) { p.weight_decay = infinity; },
      "weight_decay must be finite and not negative, got inf");
}

BOOST_AUTO_TEST_CASE(norms) {
  AdamWModel<float> model(States::plain, {{4}});
  const AdamWModel<double> other(States::plain, {{4}});
  TestTensor<Exec, float> norm({1}), two({2});
  TestTensor<Exec, double> wide({1});
  check_error<DimensionMismatch>([&] { kformer::adamw(Exec(), model.parameters, two.view<1>()); },
                                 "kformer::adamw: extents do not match: norm[2]; expected norm[1]");
  check_error<DimensionMismatch>([&] { kformer::adamw(Exec(), model.parameters, wide.view<1>()); },
                                 "kformer::adamw: norm is stored as f64, expected f32: norm[1]");
  check_error<DimensionMismatch>([&] { gradient_norm(Exec(), model.parameters, norm.view<1>(), {}); },
                                 "kformer::gradient_norm: the workspace has 0 bytes, 8 are needed; ask "
                                 "kformer::gradient_norm_workspace_bytes: norm[1]");
  model.parameters.push_back(other.parameters[0]);
  const std::string mixed = ": parameter 1: gradient is stored as f64, expected f32: gradient[4]";
  check_error<DimensionMismatch>([&] { gradient_norm(Exec(), model.parameters, norm.view<1>(), {}); },
                                 "kformer::gradient_norm" + mixed);
  check_error<DimensionMismatch>([&] { kformer::adamw(Exec(), model.parameters, norm.view<1>()); },
                                 "kformer::adamw" + mixed);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
