// SPDX-License-Identifier: MIT
#include "scaling/simulator.hpp"

#include <boost/test/unit_test.hpp>

#include <functional>

#include "kformer/core/error.hpp"
#include "scaling/simulated_machine.hpp"
#include "scaling/step_program.hpp"

namespace {

using namespace kformer;
using namespace kformer::drivers;
using Kind = SimulatedOperation::Kind;

SimulatedOperation compute(double seconds) { return {.kind = Kind::compute, .seconds = seconds}; }
SimulatedOperation exchange(double seconds) { return {.kind = Kind::exchange, .seconds = seconds}; }
SimulatedOperation send(int peer, int channel = 0) {
  return {.kind = Kind::send, .peer = peer, .channel = channel};
}
SimulatedOperation receive(double seconds, int peer, int channel = 0) {
  return {.kind = Kind::receive, .seconds = seconds, .peer = peer, .channel = channel};
}

// All in one group.
SimulatedRanks ranks(std::vector<SimulatedProgram> programs, double cores = 0) {
  SimulatedRanks all{
      .programs = {}, .groups = std::vector<std::vector<int>>(programs.size(), {0}), .cores = cores};
  for (SimulatedProgram& program : programs)
    all.programs.push_back(std::make_shared<const SimulatedProgram>(std::move(program)));
  return all;
}

// A model without arrays, so that ranks send nothing but what its layers need.
StepShape step(int data, int context, int tensor, std::int64_t micro_batches) {
  StepShape shape;
  shape.config.hidden_size = 64;
  shape.config.num_attention_heads = shape.config.num_key_value_heads = 8;
  shape.config.head_dim = 8;
  shape.config.num_hidden_layers = 3;
  shape.micro_batch = {2, 32};
  shape.micro_batches = micro_batches;
  shape.grid = {.data = data, .context = context, .tensor = tensor};
  shape.place = {.data = 0, .context = 0, .tensor = 0, .pipeline = 0};
  shape.arrays = {.elements = {8192 * 16}, .partial = {false}, .tied = {false}, .copy = {false}, .ends = {1}};
  return shape;
}

// The stages of a pipeline, each part of which has two layers.
std::vector<StepShape> stages(const PipelineShape& pipeline, std::int64_t micro_batches, int tensor = 1) {
  std::vector<StepShape> all;
  for (int s = 0; s < pipeline.ranks; ++s) {
    StepShape shape = step(1, 1, tensor, micro_batches);
    shape.config.num_hidden_layers = 2 * pipeline.ranks * pipeline.parts;
    shape.grid.pipeline = pipeline.ranks;
    shape.place.pipeline = s;
    shape.pipeline = pipeline;
    all.push_back(std::move(shape));
  }
  return all;
}

BOOST_AUTO_TEST_SUITE(simulator)

BOOST_AUTO_TEST_CASE(an_exchange_begins_when_the_last_has_come) {
  const auto time = simulate(ranks({{compute(1), exchange(0.5), compute(2)}, {compute(3), exchange(0.5)}}));
  BOOST_TEST(time.seconds == 5.5);
  BOOST_TEST(time.computed[0] == 3);
  BOOST_TEST(time.computed[1] == 3);
}

BOOST_AUTO_TEST_CASE(ranks_share_cores) {
  // Two cores: three ranks get 2/3 each until the first has done 2, at 3; the others do their last 1 and 2 alone.
  const auto time = simulate(ranks({{compute(2)}, {compute(3)}, {compute(4)}}, 2));
  BOOST_TEST(time.computed[0] == 3, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(time.computed[1] == 4, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(time.seconds == 5, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(simulate(ranks({{compute(2)}, {compute(3)}, {compute(4)}})).seconds == 4);
}

BOOST_AUTO_TEST_CASE(a_rank_that_waits_takes_no_core) {
  const auto time = simulate(ranks({{compute(1), exchange(1)}, {compute(1), compute(4), exchange(1)}}, 1));
  BOOST_TEST(time.seconds == 7, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(stages_that_pass_micro_batches_on_have_the_bubble_of_the_formula) {
  for (const int stages : {1, 2, 4})
    for (const int batches : {1, 3, 8}) {
      std::vector<SimulatedProgram> programs(static_cast<std::size_t>(stages));
      for (int s = 0; s < stages; ++s)
        for (int b = 0; b < batches; ++b) {
          auto& program = programs[static_cast<std::size_t>(s)];
          if (s > 0) program.push_back(receive(0.25, -1));
          program.push_back(compute(1));
          if (s + 1 < stages) program.push_back(send(1));
        }
      // Every stage but the first one waits 0.25 for each message.
      const double expected = stages == 1 ? batches : 1 + 1.25 * (batches + stages - 2);
      BOOST_TEST(simulate(ranks(std::move(programs))).seconds == expected);
    }
}

BOOST_AUTO_TEST_CASE(a_sender_waits_until_its_last_message_has_been_received) {
  // The first message is received at 5.5, and the sender goes on with the second one then.
  const SimulatedProgram receiver{compute(5), receive(0.5, -1), compute(3), receive(0.5, -1)};
  BOOST_TEST(simulate(ranks({{send(1), compute(1), send(1), compute(10)}, receiver})).seconds == 15.5);
  // Messages on another channel do not wait.
  const SimulatedProgram other{compute(5), receive(0.5, -1), receive(0.5, -1, 1)};
  BOOST_TEST(simulate(ranks({{send(1), compute(1), send(1, 1), compute(10)}, other})).seconds == 11);
}

BOOST_AUTO_TEST_CASE(a_wait_for_ever_is_an_error) {
  BOOST_CHECK_THROW(simulate(ranks({{receive(0, 1)}, {compute(1)}})), Error);
  BOOST_CHECK_THROW(simulate(ranks({{exchange(1)}, {}})), Error);
}

BOOST_AUTO_TEST_CASE(without_messages_scaling_is_perfect) {
  const KernelTimes times{.forward = 1, .backward = 2, .ends = 0.5, .update = 0};
  const auto seconds = [&](int data, int context, std::int64_t micro_batches) {
    KernelTimes of_rank = times;
    for (double* part : {&of_rank.forward, &of_rank.backward, &of_rank.ends}) *part /= context;
    return simulate(step_program({step(data, context, 1, micro_batches)}, of_rank, {}, 0)).seconds;
  };
  BOOST_TEST(seconds(1, 1, 8) == 8 * (3 * 3 + 0.5));
  BOOST_TEST(seconds(4, 1, 2) == seconds(1, 1, 8) / 4);
  BOOST_TEST(seconds(2, 4, 4) == seconds(1, 1, 8) / 8);
  // Two cores for four ranks are two ranks.
  BOOST_TEST(simulate(step_program({step(4, 1, 1, 2)}, times, {}, 2)).seconds == seconds(2, 1, 4));
}

BOOST_AUTO_TEST_CASE(stages_without_messages_need_as_long_as_the_schedule_says) {
  const KernelTimes times{.forward = 1, .backward = 2.5, .weights = 1, .ends = 0, .update = 0};
  for (const PipelineShape& pipeline : {PipelineShape{PipelineSchedule::one_forward_one_backward, 2, 1},
                                        {PipelineSchedule::one_forward_one_backward, 4, 1},
                                        {PipelineSchedule::interleaved, 2, 2},
                                        {PipelineSchedule::interleaved, 4, 3},
                                        {PipelineSchedule::zero_bubble, 3, 1},
                                        {PipelineSchedule::zero_bubble, 4, 1}})
    for (const std::int64_t batches : {1, 4, 9}) {
      const bool splits = splits_backward(pipeline.schedule);
      const PipelineTimes part{2, splits ? 3.0 : 5.0, splits ? 2.0 : 0.0};
      const auto shapes = stages(pipeline, batches, 2);
      BOOST_TEST(
          simulate(step_program(shapes, times, {}, 0)).seconds == pipeline_makespan(pipeline, batches, part),
          name_of(pipeline.schedule) << " of " << pipeline.ranks << ", " << batches);
    }
  // With the time of the head the last stage decides.
  const PipelineShape two{PipelineSchedule::one_forward_one_backward, 2, 1};
  const KernelTimes head{.forward = 1, .backward = 2, .weights = 0, .ends = 6, .update = 0};
  BOOST_TEST(simulate(step_program(stages(two, 5), head, {}, 0)).seconds == 2 + 5 * 12 + 4);
}

BOOST_AUTO_TEST_CASE(bubbles_are_those_of_the_formulae) {
  const KernelTimes times{.forward = 1, .backward = 2, .weights = 1, .ends = 5, .update = 1};
  const auto bubble = [&](PipelineSchedule schedule, int ranks, int parts, std::int64_t m) {
    return bubble_of(stages({schedule, ranks, parts}, m).front(), times);
  };
  for (const int p : {1, 2, 4})
    for (const int m : {4, 8, 12}) {
      const double idle = p - 1;
      BOOST_TEST(bubble(PipelineSchedule::one_forward_one_backward, p, 1, m) == idle / (m + idle),
                 boost::test_tools::tolerance(1e-12));
      // f + b − w of f + b + w.
      BOOST_TEST(bubble(PipelineSchedule::zero_bubble, p, 1, m) == idle / (3 * m + idle),
                 boost::test_tools::tolerance(1e-12));
      if (p == 1) continue;
      BOOST_TEST(bubble(PipelineSchedule::interleaved, p, 2, m) == idle / (2 * m + idle),
                 boost::test_tools::tolerance(1e-12));
    }
}

BOOST_AUTO_TEST_CASE(an_all_reduce_takes_as_long_as_in_a_ring) {
  SimulatedMachineTable machine{.flop_rate = 1, .memory_bandwidth = 1e300, .ranks_per_node = 4};
  machine.latency_inside_s = 1e-6;
  machine.latency_between_s = 1e-5;
  machine.bandwidth_inside = 1e10;
  machine.bandwidth_between = 1e9;
  for (const int n : {2, 4, 8}) {
    const double bytes = 1 << 20, inside = n <= 4;
    const Calls calls{"all_reduce", "x", CallAxis::tensor, 1,
                      all_reduce_bytes(1 << 18, 4, 0, n, std::size_t(1) << 30)};
    BOOST_TEST(static_cast<double>(calls.bytes) == 2 * bytes * (n - 1) / n);
    const Link link = links_on(machine, {.tensor = n})[static_cast<std::size_t>(CallAxis::tensor)];
    const double latency = inside ? 1e-6 : 1e-5, bandwidth = inside ? 1e10 : 1e9;
    BOOST_TEST(seconds_of(calls, link, n) == 2 * (n - 1) * (latency + bytes / n / bandwidth),
               boost::test_tools::tolerance(1e-12));
  }
}

// All messages of an exchange at once, or one after the other.
BOOST_AUTO_TEST_CASE(a_ring_takes_as_long_as_a_gather_without_computing) {
  const Link link{.latency = 0.5, .seconds_per_byte = 0.25, .seconds_per_summed = 7};
  for (const int n : {2, 3, 8}) {
    const auto sent = static_cast<std::uint64_t>(8 * (n - 1));
    const double seconds = seconds_of({"all_gather", "x", CallAxis::context, 1, sent}, link, n);
    BOOST_TEST(seconds == 0.5 + 2 * (n - 1));
    BOOST_TEST(seconds_of({"shift", "x", CallAxis::context, n - 1, sent}, link, n) == seconds);
  }
  // In three layers: keys and values in forward and in backward, and their gradients.
  StepShape gathers = step(1, 4, 1, 1), shifts = gathers;
  shifts.exchange = ContextExchange::ring;
  Links links{};
  links[static_cast<std::size_t>(CallAxis::context)] = {
      .latency = 1, .seconds_per_byte = 1, .seconds_per_summed = 1};
  const auto seconds = [&](const StepShape& shape) {
    return simulate(step_program({shape}, KernelTimes{}, links, 0)).seconds;
  };
  const double bytes = 3 * 16 * 2 * 64 * 4;
  BOOST_TEST(seconds(gathers) == 3 * 3 * (1 + bytes));
  BOOST_TEST(seconds(shifts) == seconds(gathers), boost::test_tools::tolerance(1e-12));
  // Gradients of two bytes are sums of four on their way.
  for (StepShape* shape : {&gathers, &shifts}) shape->stored_bytes = 2;
  BOOST_TEST(seconds(shifts) == seconds(gathers) + 3 * bytes / 2, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(bytes_are_those_of_the_formulae) {
  StepShape shape = step(4, 2, 2, 3);
  const auto of = [&](const char* operation, const char* region) {
    std::uint64_t bytes = 0;
    for (const Calls& c : step_calls(shape))
      if (c.operation == operation && c.region == region) bytes += c.bytes;
    return bytes;
  };
  const std::uint64_t tokens = 32, sum = tokens * 64 * 4, all = 8192 * 16 * 4;
  BOOST_TEST(of("all_reduce", "activations") == 2 * 3 * 3 * sum);
  BOOST_TEST(of("all_reduce", "gradients of activations") == (2 * 3 + 1) * 3 * sum);
  const std::uint64_t keys = tokens * 2 * 4 * 8 * 4;
  BOOST_TEST(of("all_gather", "keys and values") == 2 * 3 * 3 * keys);
  BOOST_TEST(of("reduce_scatter", "gradients of keys and values") == 3 * 3 * keys);
  BOOST_TEST(of("reduce_shards", "gradients") == all * 7 / 8);
  BOOST_TEST(of("gather_shards", "gradients") == all * 7 / 8);
  shape.exchange = ContextExchange::ring;
  BOOST_TEST(of("all_gather", "keys and values") == 0);
  BOOST_TEST(of("shift", "keys and values") == 2 * 3 * 3 * keys);
  BOOST_TEST(of("shift", "gradients of keys and values") == 3 * 3 * keys);
  shape.zero = 2;
  BOOST_TEST(of("reduce_shards", "gradients") == 3 * all * 7 / 8);
  BOOST_TEST(of("gather_shards", "weights") == all * 7 / 8);
  shape.sequence = true;
  BOOST_TEST(of("all_reduce", "activations") == 0);
  BOOST_TEST(of("reduce_scatter", "activations") == 2 * 3 * 3 * sum / 2);
  BOOST_TEST(of("all_gather", "tokens") == (6 * 3 + 2) * 3 * sum / 2);
}

BOOST_AUTO_TEST_CASE(stages_send_states_and_gradients) {
  const auto of = [](const StepShape& shape, const char* operation, const char* region) {
    std::uint64_t bytes = 0;
    for (const Calls& c : step_calls(shape))
      if (c.operation == operation && c.region == region) bytes += c.bytes;
    return bytes;
  };
  // Three ranks with two parts each, four micro-batches, whose states two ranks divide.
  auto shapes = stages({PipelineSchedule::interleaved, 3, 2}, 4, 2);
  shapes.back().arrays.tied = shapes.back().arrays.copy = shapes.front().arrays.tied = {true};
  for (StepShape& shape : shapes) {
    shape.sequence = true;
    const std::uint64_t states = 64 * 64 / 2 * 4;
    const bool first = shape.place.pipeline == 0, last = shape.place.pipeline == 2;
    BOOST_TEST(of(shape, "send", "states") == 4 * states * (last ? 1 : 2));
    BOOST_TEST(of(shape, "send", "gradients of states") == 4 * states * (first ? 1 : 2));
    BOOST_TEST(of(shape, "gather_values", "stage losses") == 2u * 4 * 8);
    BOOST_TEST(of(shape, "gather_values", "stage norm") == 2u * 8 * (2 + (last ? 0 : 2 * 16)));
    BOOST_TEST(of(shape, "all_reduce", "gradients") == (first || last ? 8192u * 16 * 4 : 0u));
    BOOST_TEST(of(shape, "reduce_scatter", "embedding") == (first ? 4 * states : 0));
    BOOST_TEST(of(shape, "all_gather", "loss") == (last ? 4u * 2 * 64 * 4 : 0u));
    // Four layers of this rank, and the ends.
    BOOST_TEST(of(shape, "all_gather", "tokens") == (6 * 4 + (first || last ? 1 : 0)) * 4 * states);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
