// SPDX-License-Identifier: MIT
// Threads of a host that call functions at the same time, each on an instance and on operands of its own: the results have
// the bits of calls one after another.
#include <atomic>
#include <thread>
#include <vector>

#include "kformer/ops/attention.hpp"
#include "kformer/ops/cross_entropy.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "support/every_kernel.hpp"

namespace kformer::Testing {
namespace {

/// Operands of some functions, and all of their outputs.
class Work {
 public:
  explicit Work(unsigned seed) {
    std::mt19937 generator(seed);
    for (auto* input : {&m_x, &m_weight, &m_dy, &m_norm_weight, &m_q, &m_k, &m_v, &m_dout})
      input->random(generator);
    m_targets.fill([](std::size_t i) { return static_cast<std::int32_t>(i % 40); });
    m_dweight.fill([](std::size_t) { return 0; });  // accumulated
  }

  /// Calls every function, and returns when the results are there.
  void run(const Exec& exec) {
    for (auto* output : outputs()) output->reset();
    linear_forward(exec, m_x.view<2>(), m_weight.view<2>(), m_y.view<2>());
    linear_backward(exec, m_x.view<2>(), m_weight.view<2>(), m_dy.view<2>(), m_dx.view<2>(),
                    m_dweight.view<2>());
    rms_norm_forward(exec, m_x.view<2>(), m_norm_weight.view<1>(), m_normed.view<2>(), m_rstd.view<1>());
    cross_entropy_forward(exec, m_y.view<2>(), m_targets.view<1>(), m_loss.view<1>(), m_sums.view<1>());
    attention_forward(exec, m_q.view<4>(), m_k.view<4>(), m_v.view<4>(), m_out.view<4>(), m_lse.view<3>(),
                      causal);
    attention_backward(exec,
                       AttentionBackwardOperands{.q = m_q.view<4>(),
                                                 .k = m_k.view<4>(),
                                                 .v = m_v.view<4>(),
                                                 .out = m_out.view<4>(),
                                                 .lse = m_lse.view<3>(),
                                                 .dout = m_dout.view<4>(),
                                                 .dq = m_dq.view<4>(),
                                                 .dk = m_dk.view<4>(),
                                                 .dv = m_dv.view<4>()},
                       causal, {}, {}, m_workspace);
    exec.fence("kformer::Testing::host_threads");
  }

  std::vector<std::vector<unsigned char>> bits() {
    std::vector<std::vector<unsigned char>> all;
    for (const auto* output : outputs()) all.push_back(output->bits());
    return all;
  }

 private:
  using Tensor = TestTensor<Exec, float>;
  static constexpr AttentionOptions causal{.causal = true};

  std::vector<Tensor*> outputs() {
    return {&m_y, &m_dx, &m_dweight, &m_normed, &m_rstd, &m_loss, &m_sums, &m_out, &m_lse, &m_dq, &m_dk, &m_dv};
  }

  Tensor m_x{{37, 64}}, m_weight{{40, 64}}, m_dy{{37, 40}}, m_norm_weight{{64}}, m_q{{2, 50, 4, 16}},
      m_k{{2, 50, 2, 16}}, m_v{{2, 50, 2, 16}}, m_dout{{2, 50, 4, 16}};
  TestTensor<Exec, std::int32_t> m_targets{{37}};
  Tensor m_y{{37, 40}}, m_dx{{37, 64}}, m_dweight{{40, 64}}, m_normed{{37, 64}}, m_rstd{{37}}, m_loss{{37}},
      m_sums{{37}}, m_out{{2, 50, 4, 16}}, m_lse{{2, 4, 50}}, m_dq{{2, 50, 4, 16}}, m_dk{{2, 50, 2, 16}},
      m_dv{{2, 50, 2, 16}};
  Kokkos::View<std::byte*, Exec::memory_space> m_workspace{
      "workspace", attention_backward_workspace_bytes(Exec(), {DType::f32, 2, 50, 50, 4, 2, 16, 16}, causal)};
};

}  // namespace

BOOST_AUTO_TEST_SUITE(host_threads)

BOOST_AUTO_TEST_CASE(calls_at_the_same_time_have_the_bits_of_calls_one_after_another) {
  constexpr int rounds = 20;
  std::vector<Work> works;
  std::vector<Exec> instances;
  std::vector<std::vector<std::vector<unsigned char>>> expected;
  for (const unsigned seed : {1u, 2u}) {
    works.emplace_back(seed).run(Exec());
    expected.push_back(works.back().bits());
    instances.push_back(one_thread());
  }
  BOOST_TEST((expected[0] != expected[1]));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < works.size(); ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < rounds; ++round) {
        works[t].run(instances[t]);
        if (works[t].bits() != expected[t]) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  BOOST_TEST(wrong == 0);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
