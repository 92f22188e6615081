// SPDX-License-Identifier: MIT
// The refusals of flash attention and their texts.
#include "kformer/ops/attention.hpp"
#include "ops/attention_cases.hpp"
#include "support/errors.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(attention_errors)

BOOST_AUTO_TEST_CASE(workspace_errors) {
  AttentionTensors<float> fits({1, 3, 5, 4, 2, 8, 8});
  check_error<DimensionMismatch>(
      [&] { attention_backward(Exec(), backward_operands(fits), {}, {}, {}, Workspace{}); },
      "kformer::attention_backward: the workspace has 0 bytes, 48 are needed; ask "
      "kformer::attention_backward_workspace_bytes: q[1,3,4,8] k[1,5,2,8] v[1,5,2,8] out[1,3,4,8] lse[1,4,3] "
      "dout[1,3,4,8] dq[1,3,4,8] dk[1,5,2,8] dv[1,5,2,8]");
  check_error<DimensionMismatch>(
      [] { attention_backward_workspace_bytes(Exec(), {DType::f32, 1, 3, 5, 4, 3, 8, 8}); },
      "kformer::attention_backward: extents do not match: q[1,3,4,8] k[1,5,3,8] v[1,5,3,8] out[1,3,4,8] "
      "lse[1,4,3] "
      "dout[1,3,4,8] dq[1,3,4,8] dk[1,5,3,8] dv[1,5,3,8]; expected the heads of k to divide those of q");
}

// The usual tiles of such heads exceed Kokkos' scratch memory: smaller ones do not, or the error says so.
BOOST_AUTO_TEST_CASE(portable_kernels_take_heads_whose_tiles_fit) {
  if (!Impl::is_host_space<Exec>) return;
  const ForcedKernels portable("attention:kokkos");
  AttentionTensors<double> wide({1, 2, 3, 1, 1, 60000, 8});
  const auto naive = wide.forward<naive_t<double>, double>();
  const auto forward = [](const auto& t) {
    attention_forward(Exec(), t.q.template view<4>(), t.k.template view<4>(), t.v.template view<4>(),
                      t.out.template view<4>(), t.lse.template view<3>());
    Exec().fence("kformer::Testing::attention_errors");
  };
  forward(wide);
  check_close("out", wide.out, naive.out);
  const AttentionTensors<float> wider({1, 1, 1, 1, 1, 5000000, 8});
  try {
    forward(wider);
    BOOST_ERROR("there is scratch memory of more than a gigabyte");
  } catch (const NotSupported& error) {
    const std::string text = error.what();
    BOOST_TEST(text.starts_with("kformer::attention: heads of so many features need "), text);
    BOOST_TEST(text.ends_with("; use smaller heads"), text);
  }
}

// Tiles hold rows with all their features. Nothing is launched: a plan has no memory.
BOOST_AUTO_TEST_CASE(simd_kernels_refuse_heads_whose_tiles_exceed_scratch_memory) {
  if (!Impl::is_host_space<Exec>) return;
  const auto check = [](const auto& fits, const auto& too_wide) {
    using Problem = std::remove_cvref_t<decltype(fits)>;
    for (const auto& kernel : kernels<Problem, Exec>()) {
      if (!std::string_view(kernel.name).starts_with("simd_") || !kernel.reject(fits).empty()) continue;
      const std::string why = kernel.reject(too_wide);
      BOOST_TEST((why.find(" bytes of scratch memory, but Kokkos has ") != why.npos),
                 kernel.name << ": " << why);
    }
  };
  constexpr std::int64_t wide = 1 << 27;
  for (const DType stored : {DType::f32, DType::bf16, DType::f64}) {
    const auto forward = [&](std::int64_t dim, std::int64_t v_dim) {
      return Impl::planned_attention_forward({stored, 1, 1, 600, 1, 1, dim, v_dim}, {}, {});
    };
    const auto backward = [&](std::int64_t dim, std::int64_t v_dim) {
      return Impl::planned_attention_backward({stored, 1, 1, 600, 1, 1, dim, v_dim}, {}, {}, {});
    };
    check(forward(8, 8), forward(wide, 8));
    check(forward(8, 8), forward(8, wide));
    check(backward(8, 8), backward(wide, 8));
    check(backward(8, 8), backward(8, wide));
  }
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  AttentionTensors<float> t({1, 3, 5, 4, 2, 8, 6});
  const std::string operands = "q[1,3,4,8] k[1,5,2,8] v[1,5,2,6] out[1,3,4,6] lse[1,4,3]";
  auto forward = [&](const auto& q, const auto& k, const auto& v, const auto& out, const auto& lse,
                     AttentionOptions options = {}) {
    attention_forward(Exec(), q.template view<4>(), k.template view<4>(), v.template view<4>(),
                      out.template view<4>(), lse.template view<3>(), options);
  };
  const std::string start = "kformer::attention_forward: ";
  TestTensor<Exec, float> k_dim({1, 5, 2, 7}), k_heads({1, 5, 3, 8}), v_heads({1, 5, 3, 6}),
      v_long({1, 6, 2, 6}), out_dim({1, 3, 4, 8}), lse_order({1, 3, 4});
  check_error<DimensionMismatch>([&] { forward(t.q, k_dim, t.v, t.out, t.lse); },
                                 start +
                                     "extents do not match: q[1,3,4,8] k[1,5,2,7] v[1,5,2,6] out[1,3,4,6] "
                                     "lse[1,4,3]; expected k to have the batch and head_dim of q");
  check_error<DimensionMismatch>([&] { forward(t.q, t.k, v_long, t.out, t.lse); },
                                 start +
                                     "extents do not match: q[1,3,4,8] k[1,5,2,8] v[1,6,2,6] out[1,3,4,6] "
                                     "lse[1,4,3]; expected v to have the batch, length and heads of k");
  check_error<DimensionMismatch>([&] { forward(t.q, k_heads, v_heads, t.out, t.lse); },
                                 start +
                                     "extents do not match: q[1,3,4,8] k[1,5,3,8] v[1,5,3,6] out[1,3,4,6] "
                                     "lse[1,4,3]; expected the heads of k to divide those of q");
  check_error<DimensionMismatch>([&] { forward(t.q, t.k, t.v, out_dim, t.lse); },
                                 start +
                                     "extents do not match: q[1,3,4,8] k[1,5,2,8] v[1,5,2,6] out[1,3,4,8] "
                                     "lse[1,4,3]; expected out[batch,q_len,q_heads,v_head_dim]");
  check_error<DimensionMismatch>([&] { forward(t.q, t.k, t.v, t.out, lse_order); },
                                 start +
                                     "extents do not match: q[1,3,4,8] k[1,5,2,8] v[1,5,2,6] out[1,3,4,6] "
                                     "lse[1,3,4]; expected lse[batch,q_heads,q_len]");
  TestTensor<Exec, f16> k16({1, 5, 2, 8});
  check_error<DimensionMismatch>(
      [&] {
        Impl::AttentionForward{t.q.ref(), k16.ref(), t.v.ref(), t.out.ref(), t.lse.ref(), {}, {}}.check();
      },
      start + "k is stored as f16, expected f32: " + operands);
  TestTensor<Exec, double> lse64({1, 4, 3});
  check_error<DimensionMismatch>(
      [&] {
        Impl::AttentionForward{t.q.ref(), t.k.ref(), t.v.ref(), t.out.ref(), lse64.ref(), {}, {}}.check();
      },
      start + "lse is stored as f64, expected f32: " + operands);
  AttentionOptions negative;
  negative.window = -2;
  check_error<NotSupported>([&] { forward(t.q, t.k, t.v, t.out, t.lse, negative); },
                            start + "window must not be negative, got -2");
  TestTensor<Exec, float> bias({1, 4, 2, 5});
  check_error<DimensionMismatch>(
      [&] {
        attention_forward(Exec(), t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>(),
                          {}, AttentionExtras<Exec>().bias(bias.view<4>()));
      },
      "kformer::attention_forward: extents do not match: q[1,3,4,8] k[1,5,2,8] v[1,5,2,6] bias[1,4,2,5] "
      "out[1,3,4,6] lse[1,4,3]; expected bias[batch or 1,q_heads or 1,q_len or 1,kv_len]");
}

// The operands of a call with extras, and the text that starts each of its errors.
struct Extras {
  AttentionTensors<float> t{AttentionCase{2, 3, 5, 4, 2, 8, 6}};
  const std::string start = "kformer::attention_forward: ", front = "q[2,3,4,8] k[2,5,2,8] v[2,5,2,6]",
                    back = " out[2,3,4,6] lse[2,4,3]";

  Impl::AttentionForward problem(const Impl::AttentionExtraRefs& extras) const {
    return {t.q.ref(), t.k.ref(), t.v.ref(), t.out.ref(), t.lse.ref(), {}, extras};
  }
  void run(const AttentionExtras<Exec>& extras, const AttentionOptions& options = {}) const {
    attention_forward(Exec(), t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>(),
                      options, extras);
  }
  void wrong_extents(const AttentionExtras<Exec>& extras, const std::string& named,
                     const std::string& expected) const {
    check_error<DimensionMismatch>([&] { run(extras); }, start + "extents do not match: " + front + ' ' +
                                                             named + back + "; expected " + expected);
  }
  void wrong_type(const AttentionExtras<Exec>& extras, const std::string& named,
                  const std::string& what) const {
    check_error<DimensionMismatch>([&] { run(extras); }, start + what + ": " + front + ' ' + named + back);
  }
  void refused(const AttentionExtras<Exec>& extras, const AttentionOptions& options,
               const std::string& sentence) const {
    check_error<NotSupported>([&] { run(extras, options); }, start + sentence);
  }
};

BOOST_AUTO_TEST_CASE(errors_of_score_terms) {
  const Extras call;
  const TestTensor<Exec, float> three({3}), four({4});
  const TestTensor<Exec, double> four_double({4});
  const TestTensor<Exec, bf16> bias16({1, 1, 3, 5});
  AttentionOptions options;
  options.softcap = -2;
  call.refused({}, options, "softcap must be finite and not negative, got -2.000000");
  options.softcap = std::numeric_limits<double>::infinity();
  call.refused({}, options, "softcap must be finite and not negative, got inf");
  options = {};
  options.scale = std::numeric_limits<double>::quiet_NaN();
  call.refused({}, options, "scale must be finite, got nan");
  options.scale = std::numeric_limits<double>::infinity();
  call.refused({}, options, "scale must be finite, got inf");
  options = {};
  options.compute = static_cast<Precision>(7);
  call.refused({}, options,
               "compute has the value 7, which its type does not name; choose one of: storage, full");
  AttentionShape shape{DType::f32, 1, 3, 5, 2, 1, 4, 4};
  shape.q_len = -1;
  check_error<DimensionMismatch>([&] { attention_backward_workspace_bytes(Exec(), shape, {}); },
                                 "kformer::AttentionShape: q_len is -1; it must not be negative");
  call.wrong_extents(AttentionExtras<Exec>().alibi_slopes(three.view<1>()), "alibi_slopes[3]",
                     "alibi_slopes[q_heads]");
  call.wrong_type(AttentionExtras<Exec>().alibi_slopes(four_double.view<1>()), "alibi_slopes[4]",
                  "alibi_slopes is stored as f64, expected f32");
  call.wrong_extents(AttentionExtras<Exec>().sinks(three.view<1>()), "sinks[3]", "sinks[q_heads]");
  call.wrong_type(AttentionExtras<Exec>().sinks(four_double.view<1>()), "sinks[4]",
                  "sinks is stored as f64, expected f32");
  call.wrong_type(AttentionExtras<Exec>().bias(bias16.view<4>()), "bias[1,1,3,5]",
                  "bias is stored as bf16, expected f32");
}

BOOST_AUTO_TEST_CASE(errors_of_block_masks) {
  const Extras call;
  const TestTensor<Exec, std::int32_t> mask({1, 4, 2, 2}), heads({1, 3, 2, 2});
  const TestTensor<Exec, float> numbers({1, 4, 2, 2});
  const auto extras = [](const auto& view, std::int64_t queries, std::int64_t keys) {
    return AttentionExtras<Exec>().block_mask(view, queries, keys);
  };
  call.refused(extras(mask.view<4>(), 2, 0), {},
               "the blocks of a block mask must have positive sizes, got 2 queries by 0 keys");
  call.wrong_extents(extras(mask.view<4>(), 2, 5), "block_mask[1,4,2,2]",
                     "block_mask[batch or 1,q_heads or 1,⌈q_len/2⌉,⌈kv_len/5⌉]");
  call.wrong_extents(extras(heads.view<4>(), 2, 3), "block_mask[1,3,2,2]",
                     "block_mask[batch or 1,q_heads or 1,⌈q_len/2⌉,⌈kv_len/3⌉]");
  const Impl::AttentionExtraRefs wrong{.block_mask = numbers.ref(), .block_q = 2, .block_kv = 3};
  check_error<DimensionMismatch>([&] { call.problem(wrong).check(); },
                                 call.start + "block_mask is stored as f32, expected i32: " + call.front +
                                     " block_mask[1,4,2,2]" + call.back);
}

BOOST_AUTO_TEST_CASE(errors_of_packed_sequences) {
  const AttentionTensors<float> t(AttentionCase{1, 0, 0, 4, 2, 8, 6}.packed({1, 2}, {3, 2}));
  const AttentionTensors<float> batch(AttentionCase{2, 3, 5, 4, 2, 8, 6});
  const std::string start = "kformer::attention_forward: ", back = " out[1,3,4,6] lse[1,4,3]";
  const auto run = [](const AttentionTensors<float>& on, const AttentionExtras<Exec>& extras) {
    attention_forward(Exec(), on.q.view<4>(), on.k.view<4>(), on.v.view<4>(), on.out.view<4>(),
                      on.lse.view<3>(), {}, extras);
  };
  const auto wrong = [&](const AttentionExtras<Exec>& extras, const std::string& named,
                         const std::string& expected) {
    check_error<DimensionMismatch>([&] { run(t, extras); },
                                   start + "extents do not match: q[1,3,4,8] k[1,5,2,8] v[1,5,2,6] " + named +
                                       back + "; expected " + expected);
  };
  const auto good = [&] {
    return AttentionExtras<Exec>().sequences(t.cu_seqlens_q.view<1>(), t.cu_seqlens_kv.view<1>());
  };
  const std::string both = "cu_seqlens_q[3] cu_seqlens_kv[3]";
  check_error<DimensionMismatch>(
      [&] { run(batch, good()); },
      start + "extents do not match: q[2,3,4,8] k[2,5,2,8] v[2,5,2,6] " + both +
          " out[2,3,4,6] lse[2,4,3]; expected a batch of 1, because the sequences are packed");
  TestTensor<Exec, std::int32_t> starts({3}), four({4}), bias_free({1, 1, 1, 1});
  wrong(AttentionExtras<Exec>().sequences(t.cu_seqlens_q.view<1>(), four.view<1>()),
        "cu_seqlens_q[3] cu_seqlens_kv[4]", "cu_seqlens_q[sequences + 1] and cu_seqlens_kv[sequences + 1]");
  const TestTensor<Exec, float> numbers({3}), bias({1, 1, 3, 5});
  check_error<DimensionMismatch>(
      [&] {
        const Impl::AttentionExtraRefs extras{.cu_seqlens_q = numbers.ref(),
                                              .cu_seqlens_kv = t.cu_seqlens_kv.ref()};
        Impl::AttentionForward{t.q.ref(), t.k.ref(), t.v.ref(), t.out.ref(), t.lse.ref(), {}, extras}.check();
      },
      start + "cu_seqlens_q is stored as f32, expected i32: q[1,3,4,8] k[1,5,2,8] v[1,5,2,6] " + both + back);
  check_error<NotSupported>([&] { run(t, good().bias(bias.view<4>())); },
                            start + "a bias is not supported for packed sequences; pad them into a batch");
  check_error<NotSupported>(
      [&] { run(t, good().block_mask(bias_free.view<4>(), 3, 5)); },
      start + "a block mask is not supported for packed sequences; pad them into a batch");
  // On a device they cannot be read without a fence.
  if constexpr (Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible) {
    for (const std::vector<std::int32_t>& values :
         std::vector<std::vector<std::int32_t>>{{1, 1, 3}, {0, 4, 3}, {0, 1, 2}}) {
      starts.fill([&](std::size_t n) { return values[n]; });
      wrong(AttentionExtras<Exec>().sequences(starts.view<1>(), t.cu_seqlens_kv.view<1>()), both,
            "cu_seqlens_q to start at 0, never to decrease, and to end at 3");
    }
    starts.fill([](std::size_t n) { return static_cast<std::int32_t>(n); });
    wrong(AttentionExtras<Exec>().sequences(t.cu_seqlens_q.view<1>(), starts.view<1>()), both,
          "cu_seqlens_kv to start at 0, never to decrease, and to end at 5");
  }
}

BOOST_AUTO_TEST_CASE(errors_of_extra_gradients) {
  const AttentionTensors<float> t(AttentionCase{2, 3, 5, 4, 2, 8, 6}.bias(Bias::full).sinks());
  const TestTensor<Exec, float> dbias({1, 4, 3, 5}), three({3});
  const TestTensor<Exec, double> dsinks({4});
  const std::string start = "kformer::attention_backward: ",
                    operands =
                        "q[2,3,4,8] k[2,5,2,8] v[2,5,2,6] bias[2,4,3,5] sinks[4] out[2,3,4,6] "
                        "lse[2,4,3] dout[2,3,4,6] dq[2,3,4,8] dk[2,5,2,8] dv[2,5,2,6] ";
  const auto run = [&](const AttentionExtraGradients<Exec>& gradients) {
    attention_backward(Exec(), backward_operands(t), {},
                       AttentionExtras<Exec>().bias(t.bias.view<4>()).sinks(t.sinks.view<1>()), gradients, {});
  };
  check_error<DimensionMismatch>([&] { run(AttentionExtraGradients<Exec>().bias(dbias.view<4>())); },
                                 start + "extents do not match: " + operands +
                                     "dbias[1,4,3,5]; expected dbias to have the extents of bias");
  check_error<DimensionMismatch>(
      [&] { run(AttentionExtraGradients<Exec>().sinks(three.view<1>())); },
      start + "extents do not match: " + operands + "dsinks[3]; expected dsinks to have the extents of sinks");
  check_error<DimensionMismatch>([&] { run(AttentionExtraGradients<Exec>().sinks(dsinks.view<1>())); },
                                 start + "dsinks is stored as f64, expected f32: " + operands + "dsinks[4]");
}

BOOST_AUTO_TEST_CASE(a_workspace_is_planned_for_starts_without_memory) {
  const Kokkos::View<std::int32_t*, Kokkos::LayoutRight, Exec::memory_space,
                     Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      nothing(nullptr, 3);
  const TestTensor<Exec, std::int32_t> starts({3});
  const auto bytes = [](const auto& q, const auto& kv) {
    return attention_forward_workspace_bytes(Exec(), {DType::f32, 1, 3, 600, 4, 2, 8, 8}, {},
                                             AttentionExtras<Exec>().sequences(q, kv));
  };
  const std::size_t expected = bytes(nothing, nothing);
  BOOST_TEST(bytes(starts.view<1>(), nothing) == expected);
  BOOST_TEST(bytes(nothing, starts.view<1>()) == expected);
}

// Kernels that split the keys have tiles of rows that share a key head.
BOOST_AUTO_TEST_CASE(of_no_heads_nothing_is_launched_in_parts) {
  const AttentionTensors<float> t({1, 2, 600, 0, 0, 8, 8});
  const ToolsRecorder recorder;
  attention_forward(Exec(), t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>());
  Exec().fence("kformer::Testing::attention_errors");
  for (const auto& kernel : recorder.kernels())
    BOOST_TEST(!kernel.label.starts_with("kformer::attention_forward_part[simd]"), kernel.label);
}

// Those of a plan serve for its workspace, not for a call.
BOOST_AUTO_TEST_CASE(extras_without_an_address_are_refused) {
  const AttentionTensors<float> t(AttentionCase{2, 3, 5, 4, 2, 8, 6});
  const Kokkos::View<float*, Kokkos::LayoutRight, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      sinks(nullptr, 4);
  check_error<DimensionMismatch>(
      [&] {
        attention_forward(Exec(), t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>(),
                          {}, AttentionExtras<Exec>().sinks(sinks));
      },
      "kformer::attention_forward: sinks has no memory (null pointer, or a ledger that only counts); allocate "
      "it: "
      "q[2,3,4,8] "
      "k[2,5,2,8] v[2,5,2,6] sinks[4] out[2,3,4,6] lse[2,4,3]");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
