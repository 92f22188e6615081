// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention_cases.hpp"

/// \file
/// Starts of packed sequences that a device cannot refuse: that would need a fence. They must not lead outside
/// the operands, and elements that belong to no sequence must not change.

namespace kformer::Testing {

struct SequenceStarts {
  std::vector<std::int32_t> q, kv;
};

/// Starts that decrease or exceed 12 queries and 40 keys, and how they are understood.
struct WrongStarts {
  SequenceStarts wrong, understood;
};
inline const std::vector<WrongStarts> wrong_starts{
    {{{-5, 4, 2, 100}, {-1, 30, 9, 2000000000}}, {{0, 4, 4, 12}, {0, 30, 30, 40}}},
    {{{3, 7, 6, 9}, {5, 20, 10, 30}}, {{3, 7, 7, 9}, {5, 20, 20, 30}}},
    {{{70, -100, 2000000000, 3}, {3, 2000000000, -100, 70}}, {{12, 12, 12, 12}, {3, 40, 40, 40}}},
};
inline AttentionCase case_of_wrong_starts() {
  return AttentionCase{1, 0, 0, 4, 2, 16, 16}.packed({3, 4, 5}, {7, 3, 30}).causal();
}

template <class T>
void set_starts(AttentionTensors<T>& t, const SequenceStarts& starts) {
  t.cu_seqlens_q.fill([&](std::size_t n) { return starts.q[n]; });
  t.cu_seqlens_kv.fill([&](std::size_t n) { return starts.kv[n]; });
}

/// Whether the tokens from the first start up to the last one were written, of `x` (batch, token, head,
/// feature) filled with `before`, and no others.
template <class T>
void check_written(const TestTensor<Exec, T>& x, const std::vector<std::int32_t>& starts, double before) {
  const auto values = x.template read<double>();
  for (std::int64_t i = 0; i < values.extent(1); ++i) {
    const bool is_there = i >= starts.front() && i < starts.back();
    for (std::int64_t h = 0; h < values.extent(2); ++h)
      for (std::int64_t d = 0; d < values.extent(3); ++d)
        BOOST_TEST((values(0, i, h, d) != before) == is_there, "token " << i);
  }
}

/// Wrong starts give the result of the starts as which they are interpreted. `written` are outputs of the
/// problem and the starts that they follow.
template <class T, class Kernel, class Problem>
void check_wrong_starts(
    const Kernel& kernel, AttentionTensors<T>& t, const Problem& problem, const WrongStarts& starts,
    const std::vector<Output*>& outputs,
    const std::vector<std::pair<TestTensor<Exec, T>*, const std::vector<std::int32_t>*>>& written) {
  constexpr float before = 0x1p60f;  // no result is as large
  for (const auto& [output, of] : written) output->fill([=](std::size_t) { return before; });
  std::vector<std::vector<unsigned char>> expected;
  set_starts(t, starts.understood);
  test_kernels({&kernel, 1}, problem, outputs, [&](const std::string&) {
    for (const Output* output : outputs) expected.push_back(output->bits());
    for (const auto& [output, of] : written) check_written(*output, *of, before);
  });
  set_starts(t, starts.wrong);
  test_kernels({&kernel, 1}, problem, outputs, [&](const std::string&) {
    for (std::size_t i = 0; i < outputs.size(); ++i) BOOST_TEST((outputs[i]->bits() == expected[i]));
  });
}

/// Of a kernel of forward.
template <class T = bf16, class Kernel>
void check_wrong_starts_of_forward(const Kernel& kernel) {
  for (const WrongStarts& starts : wrong_starts) {
    AttentionTensors<T> t(case_of_wrong_starts(), Rows::aligned);
    check_wrong_starts(kernel, t, t.forward_problem(), starts, {&t.out, &t.lse},
                       {{&t.out, &starts.understood.q}});
  }
}

/// Of a kernel of backward, with so many features.
template <class T = bf16, class Kernel>
void check_wrong_starts_of_backward(const Kernel& kernel, std::int64_t features = 16) {
  AttentionCase c = case_of_wrong_starts();
  c.head_dim = c.v_head_dim = features;
  for (const WrongStarts& starts : wrong_starts) {
    AttentionTensors<T> t(c, Rows::aligned);
    t.save(ref::AttentionResult<double>{
        HostTensor<double>({1, 12, 4, features}), HostTensor<double>({1, 4, 12}), {}});
    const SequenceStarts& own = starts.understood;
    check_wrong_starts(kernel, t, t.backward_problem(), starts, t.gradients(),
                       {{&t.dq, &own.q}, {&t.dk, &own.kv}, {&t.dv, &own.kv}});
  }
}

}  // namespace kformer::Testing
