// SPDX-License-Identifier: MIT
#include "attention_run.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <optional>

#include "common/fill_normal.hpp"
#include "common/sampling.hpp"
#include "kformer/ops/attention_plan.hpp"
#include "kformer/ops/standard_attention.hpp"

namespace kformer::perf {

namespace {

// The kernel that is chosen for one direction while this lives.
class ChosenKernel final : public KernelObserver {
 public:
  explicit ChosenKernel(bool backward)
      : m_direction(backward ? "_backward" : "_forward"), m_previous(set_kernel_observer(this)) {}
  ~ChosenKernel() override { set_kernel_observer(m_previous); }
  void chosen(const char*, const char* function, const char* kernel) override {
    if (std::string_view(function).ends_with(m_direction)) m_name = kernel;
  }
  const std::string& name() const { return m_name; }

 private:
  std::string_view m_direction;
  KernelObserver* m_previous;
  std::string m_name;
};

// What one call reads and writes; the empty arrays are those it does not need.
template <class T>
struct OperandSet {
  using Array = Kokkos::View<T****, Kokkos::LayoutRight, Space>;
  Array q, k, v, out, dout, dq, dk, dv, probabilities;
  Kokkos::View<compute_t<T>***, Kokkos::LayoutRight, Space> lse;

  OperandSet(const Space& exec, const AttentionCase& c, std::uint64_t seed) {
    const AttentionShape& s = c.shape;
    const auto normal = [&](const Array& array) {
      drivers::fill_normal(exec, array.data(), static_cast<std::int64_t>(array.size()), ++seed);
    };
    q = Array("kformer::perf::q", s.batch, s.q_len, s.q_heads, s.head_dim);
    k = Array("kformer::perf::k", s.batch, s.kv_len, s.kv_heads, s.head_dim);
    v = Array("kformer::perf::v", s.batch, s.kv_len, s.kv_heads, s.v_head_dim);
    out = Array("kformer::perf::out", s.batch, s.q_len, s.q_heads, s.v_head_dim);
    for (const Array& array : {q, k, v}) normal(array);
    if (c.algorithm == Algorithm::standard)
      probabilities = Array("kformer::perf::probabilities", s.batch, s.q_heads, s.q_len, s.kv_len);
    else
      lse = decltype(lse)("kformer::perf::lse", s.batch, s.q_heads, s.q_len);
    if (!c.backward) return;
    dout = Array("kformer::perf::dout", s.batch, s.q_len, s.q_heads, s.v_head_dim);
    normal(dout);
    dq = Array("kformer::perf::dq", s.batch, s.q_len, s.q_heads, s.head_dim);
    dk = Array("kformer::perf::dk", s.batch, s.kv_len, s.kv_heads, s.head_dim);
    dv = Array("kformer::perf::dv", s.batch, s.kv_len, s.kv_heads, s.v_head_dim);
  }

  std::size_t bytes() const {
    std::size_t elements = 0;
    for (const Array& array : {q, k, v, out, dout, dq, dk, dv, probabilities}) elements += array.size();
    return elements * sizeof(T);
  }
};

template <class T>
class AttentionRunOf final : public AttentionRun {
 public:
  explicit AttentionRunOf(const AttentionCase& c) : m_case(c) {
    const ChosenKernel chosen(c.backward);
    std::size_t workspace_bytes = 0;
    if (c.algorithm == Algorithm::standard) {
      if (c.backward)
        workspace_bytes = standard_attention_backward_workspace_bytes<T>(m_exec, c.shape.batch, c.shape.q_heads,
                                                                         c.shape.q_len, c.shape.kv_len);
    } else {
      std::optional<ForcedKernels> forced;
      if (c.algorithm == Algorithm::portable) forced.emplace("attention:kokkos");
      m_plan.emplace(c.shape, c.options);
      workspace_bytes = m_plan->forward_workspace_bytes();
      if (c.backward) workspace_bytes = std::max(workspace_bytes, m_plan->backward_workspace_bytes());
    }
    m_workspace = Bytes("kformer::perf::workspace", workspace_bytes);
    const std::size_t cache = last_level_cache_bytes();
    m_sets.emplace_back(m_exec, c, 0);
    if (const std::size_t bytes = m_sets.front().bytes(); bytes < cache)
      for (std::size_t i = 0; i <= cache / bytes; ++i) m_sets.emplace_back(m_exec, c, 8 * (i + 1));
    for (const auto& set : m_sets) {
      if (c.backward) forward(set);
      launch(set);
    }
    m_exec.fence("kformer::perf: warm-up");
    m_kernel = chosen.name();
  }

  double seconds() override {
    const auto& set = m_sets[m_next];
    m_next = (m_next + 1) % m_sets.size();
    const auto call = [&] { launch(set); };
    return drivers::seconds_of(m_exec, call);
  }

  const std::string& kernel() const override { return m_kernel; }

 private:
  using Bytes = Kokkos::View<std::byte*, Space>;

  void launch(const OperandSet<T>& x) const { m_case.backward ? backward(x) : forward(x); }

  void forward(const OperandSet<T>& x) const {
    if (m_plan)
      m_plan->forward(m_exec, x.q, x.k, x.v, x.out, x.lse, m_workspace);
    else
      standard_attention_forward(m_exec, x.q, x.k, x.v, x.out, x.probabilities, m_case.options);
  }

  void backward(const OperandSet<T>& x) const {
    if (m_plan)
      m_plan->backward(m_exec, x.q, x.k, x.v, x.out, x.lse, x.dout, x.dq, x.dk, x.dv, m_workspace);
    else
      standard_attention_backward(m_exec, x.q, x.k, x.v, x.probabilities, x.dout, x.dq, x.dk, x.dv,
                                  m_case.options, m_workspace);
  }

  AttentionCase m_case;
  Space m_exec;
  std::optional<AttentionPlan<Space>> m_plan;  // none for standard attention
  Bytes m_workspace;
  std::vector<OperandSet<T>> m_sets;
  std::size_t m_next = 0;
  std::string m_kernel;
};

}  // namespace

std::size_t last_level_cache_bytes() {
  std::size_t largest = 0;
  for (const auto& cache : benchmark::CPUInfo::Get().caches)
    largest = std::max(largest, static_cast<std::size_t>(cache.size));
  return largest;
}

std::unique_ptr<AttentionRun> make_attention_run(const AttentionCase& what) {
  return dispatch_dtype(what.shape.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<AttentionRun> {
    return std::make_unique<AttentionRunOf<T>>(what);
  });
}

}  // namespace kformer::perf
