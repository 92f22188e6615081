// SPDX-License-Identifier: MIT
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "attention/attention_case.hpp"
#include "measure/spaces.hpp"
#include "start_kokkos_once.hpp"
#include "support/flash_model.hpp"
#include "sweep/judge.hpp"

/// \file
/// Whether the check of kformer-attention accepts attention that is right and rejects attention that is slightly wrong. What it
/// says of more seeds, and of sampled rows in every type (docs/tolerance.md):
/// KFORMER_DRAWS=3 kformer_tests_drivers --run_test=wrong_attention --log_level=message

namespace kformer::drivers {
namespace {

using measure::HostArray;
using measure::HostArrays;
using Testing::FlashModel;
using Testing::Mutation;
using Testing::mutation_names;

/// `q_len` queries at the end of `kv_len` keys.
struct Shape {
  std::int64_t q_len, kv_len, heads;
};

/// From one tile with few keys to many tiles, where a single key weighs little. Of the last, every 31st row is judged.
constexpr std::array<Shape, 6> shapes{
    {{7, 7, 1}, {64, 64, 1}, {128, 256, 1}, {48, 1024, 1}, {16, 4096, 1}, {64, 64, 257}}};
constexpr std::int64_t head_dim = 64;

template <class Tensor>
HostArray array_of(const Tensor& t) {
  HostArray array;
  for (int r = 0; r < t.rank(); ++r) array.shape.push_back(static_cast<std::size_t>(t.extent(r)));
  array.values.assign(t.values().begin(), t.values().end());
  return array;
}

std::string host_space() {
  std::string found;
  measure::for_each_space([&]<class Space>(std::type_identity<Space>, const char* name) {
    if (std::is_same_v<Space, Kokkos::DefaultHostExecutionSpace>) found = name;
  });
  return found;
}

/// What the check said of one kernel.
struct Tally {
  int judged = 0;
  int accepted = 0;
  int missed = 0;  ///< seeds and masks for which it accepted the kernel on every shape
};
using Tallies = std::array<Tally, mutation_names.size()>;

/// A comparison of one case, from tensors of its own.
template <class T>
class Judged {
 public:
  using C = compute_t<T>;
  using Heads = typename FlashModel<T>::Heads;

  Judged(const Shape& shape, bool causal, Direction direction, unsigned seed) : m_generator(seed) {
    m_options.causal = causal;
    m_q = random(shape.q_len, shape.heads);
    m_k = random(shape.kv_len, shape.heads);
    m_v = random(shape.kv_len, shape.heads);
    m_dout = random(shape.q_len, shape.heads);
    m_tensors.arrays = {
        {"q", array_of(m_q)}, {"k", array_of(m_k)}, {"v", array_of(m_v)}, {"grad_out", array_of(m_dout)}};
    m_result.point = {.execution_space = host_space(),
                      .dtype = dtype_of<T>,
                      .direction = direction,
                      .causal = causal,
                      .num_attention_heads = shape.heads,
                      .num_key_value_heads = shape.heads,
                      .head_dim = head_dim,
                      .v_head_dim = head_dim,
                      .batch = 1,
                      .q_len = shape.q_len == shape.kv_len ? 0 : shape.q_len,
                      .seq_len = shape.kv_len,
                      .impl = AttentionAlgorithm::flash};
    m_result.kernels = "attention_forward:model attention_backward:model";
    m_right = model(Mutation::none).forward();
  }

  /// Whether the check accepts a kernel with this fault. A faulty pass writes its own results, and the others are right: so the
  /// fault shows there alone.
  bool accepts(Mutation mutation) {
    HostArrays results{{"out", array_of(m_right.out)}, {"lse", array_of(m_right.lse)}};
    if (m_result.point.direction == Direction::forward) {
      results["out"] = array_of(model(mutation).forward().out);
    } else {
      const auto gradients = model(mutation).backward(m_right, m_dout);
      results["grad.q"] = array_of(gradients.q);
      results["grad.k"] = array_of(gradients.k);
      results["grad.v"] = array_of(gradients.v);
    }
    m_result.status = CaseStatus::unchecked;
    m_result.message.clear();
    m_sweep.check(judged_part(std::move(results)), m_result, [] { return false; });
    BOOST_REQUIRE_MESSAGE(m_result.status != CaseStatus::unchecked, m_result.message);
    return m_result.status == CaseStatus::ok;
  }

 private:
  Heads random(std::int64_t length, std::int64_t heads) {
    std::normal_distribution<float> normal;
    Heads t({1, length, heads, head_dim});
    for (C& x : t.values()) x = Impl::stored<T>(static_cast<C>(normal(m_generator)));
    return t;
  }
  FlashModel<T> model(Mutation mutation) const { return {m_q, m_k, m_v, m_options, mutation}; }

  std::mt19937 m_generator;
  AttentionOptions m_options;
  Heads m_q, m_k, m_v, m_dout;
  typename FlashModel<T>::Saved m_right;
  AttentionTensors m_tensors;
  AttentionCompareDeck m_deck;
  AttentionSweep m_sweep{m_deck, &m_tensors};
  AttentionResult m_result;
};

/// Whether a kernel with this fault computes the same as one without: of keys that are zeros come no gradients.
bool changes_nothing(Mutation mutation, Direction direction, bool causal) {
  return mutation == Mutation::one_key_more && direction == Direction::backward && !causal;
}

template <class T>
Tallies judge_all(Direction direction) {
  const char* given = std::getenv("KFORMER_DRAWS");
  const unsigned seeds = given ? static_cast<unsigned>(std::atoi(given)) : 1;
  Tallies tally;
  for (unsigned seed = 1; seed <= seeds; ++seed)
    for (const bool causal : {false, true}) {
      std::array<int, mutation_names.size()> judged{}, accepted{};
      for (const Shape& shape : shapes) {
        // It takes most of the time.
        if (&shape == &shapes.back() && !given && !(std::is_same_v<T, float> && causal)) continue;
        Judged<T> kernels(shape, causal, direction, seed);
        for (std::size_t m = 0; m < mutation_names.size(); ++m) {
          const auto mutation = static_cast<Mutation>(m);
          if (changes_nothing(mutation, direction, causal)) continue;
          ++judged[m];
          accepted[m] += kernels.accepts(mutation);
        }
      }
      for (std::size_t m = 0; m < mutation_names.size(); ++m) {
        tally[m].judged += judged[m];
        tally[m].accepted += accepted[m];
        tally[m].missed += judged[m] > 0 && accepted[m] == judged[m];
      }
    }
  for (std::size_t m = 0; m < mutation_names.size(); ++m)
    BOOST_TEST_MESSAGE(to_string(dtype_of<T>)
                       << (direction == Direction::forward ? " forward, " : " backward, ") << mutation_names[m]
                       << ": accepted " << tally[m].accepted << " of " << tally[m].judged);
  return tally;
}

template <class T>
void check_that_faults_are_caught(Direction direction) {
  Testing::start_kokkos_once();
  const Tallies tally = judge_all<T>(direction);
  BOOST_TEST(tally[0].accepted == tally[0].judged, "a correct kernel was rejected");
  for (std::size_t m = 1; m < mutation_names.size(); ++m) {
    BOOST_TEST(tally[m].judged > 0);
    BOOST_TEST(tally[m].missed == 0, mutation_names[m] << " passed every shape");
    if (sizeof(T) > 2) BOOST_TEST(tally[m].accepted == 0, mutation_names[m] << " was accepted");
  }
}

using Storage = std::tuple<float, bf16, f16, double>;

}  // namespace

BOOST_AUTO_TEST_SUITE(wrong_attention)

BOOST_AUTO_TEST_CASE_TEMPLATE(faults_of_forward_are_rejected, T, Storage) {
  check_that_faults_are_caught<T>(Direction::forward);
}
BOOST_AUTO_TEST_CASE_TEMPLATE(faults_of_backward_are_rejected, T, Storage) {
  check_that_faults_are_caught<T>(Direction::backward);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::drivers
