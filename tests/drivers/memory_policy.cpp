// SPDX-License-Identifier: MIT
#include "learner/memory_policy.hpp"

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include "kformer/core/error.hpp"
#include "measure/spaces.hpp"
#include "start_kokkos_once.hpp"

namespace {

using namespace kformer;
using namespace kformer::drivers;

LearnerTask task(DType dtype) {
  LearnerTask task;
  task.config = {.hidden_size = 40,
                 .intermediate_size = 61,
                 .num_attention_heads = 4,
                 .num_key_value_heads = 2,
                 .head_dim = 8,
                 .num_hidden_layers = 2,
                 .vocab_size = 75};
  task.dtype = dtype;
  task.trainer.shape = {2, 50};
  return task;
}

struct Training {
  std::string name;
  LearnerTask task;
};

std::vector<Training> trainings() {
  std::vector<Training> all{{"f32", task(DType::f32)},
                            {"bf16", task(DType::bf16)},
                            {"f16, tied embeddings", task(DType::f16)},
                            {"f64, several micro-batches", task(DType::f64)},
                            {"bf16, packed, 8-bit states, checkpoints", task(DType::bf16)}};
  all[0].task.trainer.layer.accumulate = false;
  all[1].task.trainer.layer.accumulate = false;
  all[2].task.trainer.layer.accumulate = false;
  all[1].task.trainer.optimizer.master = false;
  all[2].task.config.tie_word_embeddings = true;
  all[4].task.trainer.layer.packed = true;
  all[4].task.trainer.optimizer.states = OptimizerStates::eight_bit;
  all[4].task.checkpoints.emplace();
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_policy)

// 10,000 budgets from the fewest bytes to those of `none`.
BOOST_AUTO_TEST_CASE(a_larger_budget_never_takes_less_memory_or_more_time) {
  Testing::start_kokkos_once();
  const std::string space = measure::built_spaces().front();
  const auto cases = trainings();
  const std::size_t budgets = 10000 / cases.size();
  for (const Training& t : cases) BOOST_TEST_CONTEXT(t.name) {
      const auto decided = [&](std::size_t budget) {
        return decide_memory(space, {t.task}, Recompute::automatic, budget);
      };
      const std::size_t least = forecast_memory(space, {t.task}, Recompute::automatic, std::size_t(0))
                                    .bytes_in_space,
                        most = forecast_memory(space, {t.task}, Recompute::none, {}).bytes_in_space;
      BOOST_CHECK_THROW(decided(least - 1), OutOfMemory);
      MemoryDecision before = decided(least);
      BOOST_TEST(before.bytes_in_space == least);
      std::size_t wrong = 0, schedules = 1;
      for (std::size_t i = 1; i <= budgets; ++i) {
        const std::size_t budget = least + (most - least) * i / budgets;
        MemoryDecision next = decided(budget);
        wrong += next.bytes_in_space > budget || next.bytes_in_space < before.bytes_in_space ||
                 next.extra_seconds > before.extra_seconds;
        schedules += next.bytes_in_space > before.bytes_in_space;
        before = std::move(next);
      }
      BOOST_TEST(wrong == 0u);
      BOOST_TEST(schedules > 2u);
      BOOST_TEST(before.extra_seconds == 0);
    }
}

BOOST_AUTO_TEST_SUITE_END()
