// SPDX-License-Identifier: MIT
// What flash attention refuses, and the texts that say so.
#include "kformer/ops/attention_plan.hpp"
#include "ops/attention_cases.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(attention_errors)

BOOST_AUTO_TEST_CASE(plan_errors) {
  const AttentionPlan<Exec> plan({DType::f32, 1, 3, 5, 4, 2, 8, 8});
  AttentionTensors<float> t({1, 4, 5, 4, 2, 8, 8});
  check_error<DimensionMismatch>(
      [&] {
        plan.forward(Exec(), t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>());
      },
      "kformer::attention_forward: extents do not match: q[1,4,4,8] k[1,5,2,8] v[1,5,2,8] out[1,4,4,8] "
      "lse[1,4,4]; "
      "expected the shape of the plan: q[1,3,4,8] k[1,5,2,8] v[1,5,2,8] out[1,3,4,8] lse[1,4,3]");
  AttentionTensors<bf16> half(AttentionCase{1, 3, 5, 4, 2, 8, 8});
  check_error<DimensionMismatch>(
      [&] {
        plan.forward(Exec(), half.q.view<4>(), half.k.view<4>(), half.v.view<4>(), half.out.view<4>(),
                     half.lse.view<3>());
      },
      "kformer::attention_forward: q is stored as bf16, expected f32: q[1,3,4,8] k[1,5,2,8] v[1,5,2,8] "
      "out[1,3,4,8] lse[1,4,3]");
  AttentionTensors<float> fits({1, 3, 5, 4, 2, 8, 8});
  check_error<DimensionMismatch>(
      [&] {
        plan.backward(Exec(), fits.q.view<4>(), fits.k.view<4>(), fits.v.view<4>(), fits.out.view<4>(),
                      fits.lse.view<3>(), fits.dout.view<4>(), fits.dq.view<4>(), fits.dk.view<4>(),
                      fits.dv.view<4>(), Workspace{});
      },
      "kformer::attention_backward: the workspace has 0 bytes, 48 are needed; ask "
      "kformer::attention_backward_workspace_bytes: q[1,3,4,8] k[1,5,2,8] v[1,5,2,8] out[1,3,4,8] lse[1,4,3] "
      "dout[1,3,4,8] dq[1,3,4,8] dk[1,5,2,8] dv[1,5,2,8]");
  check_error<DimensionMismatch>(
      [] { AttentionPlan<Exec>({DType::f32, 1, 3, 5, 4, 3, 8, 8}); },
      "kformer::attention_backward: extents do not match: q[1,3,4,8] k[1,5,3,8] v[1,5,3,8] out[1,3,4,8] "
      "lse[1,4,3] "
      "dout[1,3,4,8] dq[1,3,4,8] dk[1,5,3,8] dv[1,5,3,8]; expected the heads of k to divide those of q");
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
  check_error<DimensionMismatch>([&] { forward(t.q, k16, t.v, t.out, t.lse); },
                                 start + "k is stored as f16, expected f32: " + operands);
  TestTensor<Exec, double> lse64({1, 4, 3});
  check_error<DimensionMismatch>([&] { forward(t.q, t.k, t.v, t.out, lse64); },
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

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
