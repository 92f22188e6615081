// SPDX-License-Identifier: MIT
#include "kformer/parallel/pipeline_schedule.hpp"

#include <boost/test/unit_test.hpp>

#include <map>

#include "kformer/core/error.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

template <class F>
void for_pipelines(F f) {
  for (const PipelineSchedule schedule : {PipelineSchedule::one_forward_one_backward,
                                          PipelineSchedule::interleaved, PipelineSchedule::zero_bubble})
    for (int ranks = 1; ranks <= 8; ++ranks)
      for (int parts = 1; parts <= (schedule == PipelineSchedule::interleaved && ranks > 1 ? 4 : 1); ++parts)
        f(PipelineShape{schedule, ranks, parts});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pipeline_schedule)

// Each micro-batch goes forward through a part once, then backward; micro-batches keep their order.
BOOST_AUTO_TEST_CASE(every_rank_does_all_its_work) {
  for_pipelines([](const PipelineShape& shape) {
    const bool splits = shape.schedule == PipelineSchedule::zero_bubble;
    for (std::int64_t m = 0; m <= 20; ++m)
      for (int rank = 0; rank < shape.ranks; ++rank) {
        std::map<std::pair<PipelineWork, int>, std::int64_t> next;
        const auto work = pipeline_work(shape, rank, m);
        for (const PipelineTask& task : work) {
          BOOST_REQUIRE(task.micro_batch == (next[{task.work, task.part}]++));
          if (task.work == PipelineWork::backward)
            BOOST_REQUIRE(task.micro_batch < (next[{PipelineWork::forward, task.part}]));
          if (task.work == PipelineWork::weights)
            BOOST_REQUIRE(task.micro_batch < (next[{PipelineWork::backward, task.part}]));
        }
        BOOST_TEST(std::ssize(work) == (splits ? 3 : 2) * shape.parts * m);
        for (const auto& [key, count] : next) BOOST_TEST(count == m);
      }
  });
}

// Nobody waits for ever, and no rank idles for longer than the schedules promise, with m a multiple of the ranks.
BOOST_AUTO_TEST_CASE(idle_times_are_those_of_the_formulas) {
  const PipelineTimes times{1, 1, 1};
  for_pipelines([&](const PipelineShape& shape) {
    for (std::int64_t m = 0; m <= 20; ++m) {
      const double work = 3.0 * static_cast<double>(m * shape.parts);
      const double makespan = pipeline_makespan(shape, m, times);
      BOOST_TEST(makespan >= work);
      if (m < shape.ranks || m % shape.ranks != 0) continue;
      const double idle = shape.ranks - 1;
      BOOST_TEST(makespan - work == (shape.schedule == PipelineSchedule::zero_bubble ? idle : 3 * idle),
                 name_of(shape.schedule)
                     << ", " << shape.ranks << " ranks, " << shape.parts << " parts, " << m);
    }
  });
}

// 1F1B also with times that differ: (p − 1) / (m + p − 1) of the time.
BOOST_AUTO_TEST_CASE(the_bubble_of_1f1b) {
  for (int p = 1; p <= 8; ++p)
    for (const std::int64_t m : {1, 3, 8, 16}) {
      const double makespan = pipeline_makespan({.ranks = p}, m, {1, 1.25, 0.75});
      BOOST_TEST(makespan == 3 * static_cast<double>(m + p - 1));
    }
}

// Messages from the last part to the first: with fewer under way ranks of the interleaved schedule would wait for ever, and
// with as many nobody waits for longer.
BOOST_AUTO_TEST_CASE(messages_of_a_tied_embedding) {
  const PipelineTimes times{1, 1, 1};
  for_pipelines([&](const PipelineShape& shape) {
    if (shape.ranks == 1) return;
    const bool interleaved = shape.schedule == PipelineSchedule::interleaved;
    const std::int64_t most = pipeline_tied_messages(shape);
    for (std::int64_t m = 0; m <= 20; ++m) {
      const double with = pipeline_makespan(shape, m, times, most),
                   without = pipeline_makespan(shape, m, times);
      if (interleaved || shape.ranks <= 3)
        BOOST_TEST(with == without, name_of(shape.schedule) << ", " << shape.ranks << " ranks, " << m);
      else
        BOOST_TEST(with >= without);
      if (shape.parts > 1 && m >= 2 * shape.ranks)
        check_error<NotSupported>([&] { pipeline_makespan(shape, m, times, most - 1); },
                                  "kformer::pipeline_makespan: the ranks of this schedule wait for each other");
    }
  });
  // Of a micro-batch in 1F1B, in the time of forward.
  const auto of_one = [&](int ranks) {
    const auto until = [&](std::int64_t m) { return pipeline_makespan({.ranks = ranks}, m, times, 1); };
    return (until(80) - until(40)) / 40;
  };
  BOOST_TEST(of_one(3) == 3);
  BOOST_TEST(of_one(4) == 3.5);
  BOOST_TEST(of_one(8) == 7.5);
}

BOOST_AUTO_TEST_CASE(micro_batches_that_wait) {
  using enum PipelineSchedule;
  for (int rank = 0; rank < 4; ++rank) {
    BOOST_TEST(pipeline_slots({one_forward_one_backward, 4, 1}, rank, 0, 16) == 4 - rank);
    BOOST_TEST(pipeline_slots({one_forward_one_backward, 4, 1}, rank, 0, 2) == std::min(2, 4 - rank));
    BOOST_TEST(pipeline_slots({zero_bubble, 4, 1}, rank, 0, 16) == 4);
  }
  BOOST_TEST(pipeline_slots({interleaved, 4, 2}, 0, 0, 16) == 8);
  BOOST_TEST(pipeline_slots({interleaved, 4, 2}, 3, 1, 16) == 1);
}

BOOST_AUTO_TEST_CASE(pipelines_that_there_are_not) {
  check_error<NotSupported>(
      [] { PipelineShape{.ranks = 0}.check(); },
      "kformer::PipelineShape: a pipeline needs at least one rank and one part of the model on "
      "each, got 0 and 1");
  check_error<NotSupported>(
      [] { (PipelineShape{.ranks = 2, .parts = 2}).check(); },
      "kformer::PipelineShape: the schedule 1f1b has one part of the model on each rank, got 2; "
      "choose interleaved");
  check_error<NotSupported>([] { (PipelineShape{PipelineSchedule::interleaved, 1, 2}).check(); },
                            "kformer::PipelineShape: one rank has the whole model in one part, got 2");
  check_error<NotSupported>([] { pipeline_work({.ranks = 2}, 2, 1); },
                            "kformer::pipeline_work: there is no rank 2 of 2 with 1 micro-batches");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
