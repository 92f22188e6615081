// SPDX-License-Identifier: MIT
#include <numeric>

#include "kformer/parallel/shards.hpp"
#include "ops/adamw/kokkos.hpp"
#include "parallel/pipeline_runs.hpp"

// Ranks that divide the layers, and keep the gradients of their shard alone.
namespace kformer::Testing {
namespace {

// Two ranks along `data`, where there are enough.
RankGrid shared_stages(const std::shared_ptr<Communicator>& ranks) {
  const int data = ranks->size() % 2 == 0 && ranks->size() > 2 ? 2 : 1;
  return RankGrid(ranks, {.data = data, .pipeline = ranks->size() / data});
}

// How many gradients each group of a rank has, of those in its shard and of all.
struct GroupSizes {
  std::vector<std::int64_t> own, all;
  std::int64_t tied = 0;       // of an embedding that two stages have
  std::int64_t at_a_time = 0;  // of a layer of each part, and of what is no layer
  std::int64_t arrays = 0;

  template <class T>
  GroupSizes(Trainer<Exec, T>& trainer, const Communicator& replicas) {
    std::vector<std::int64_t> sizes;
    std::vector<std::size_t> ends;
    for (auto& part : trainer.parts()) {
      const std::size_t first = sizes.size();
      for (const ParameterGroup& group : part.gradient_groups()) ends.push_back(first + group.end);
      std::int64_t layers = 0;
      for (const Parameter& p : part.trained()) {
        sizes.push_back(p.weight.size());
        if (p.tied) tied += p.weight.size();
        (p.name.starts_with("model.layers.") ? layers : at_a_time) += p.weight.size();
      }
      at_a_time += layers / (part.part().end - part.part().begin);
    }
    arrays = std::ssize(sizes);
    std::ranges::sort(ends);
    const Shards shards(sizes, Impl::adamw_piece, replicas.size(), ends);
    for (std::size_t begin = 0; const std::size_t end : ends) {
      own.push_back(0);
      all.push_back(0);
      for (; begin < end; ++begin) {
        own.back() += shards.of(replicas.rank())[begin].size();
        all.back() += sizes[begin];
      }
    }
  }
};

std::uint64_t sent_as(const Communicator& among, std::string_view region) {
  std::uint64_t bytes = 0;
  for (const auto& entry : among.log().counts())
    if (entry.region == region) bytes += entry.bytes;
  return bytes;
}

// In the fixed order, of the gradients of so many micro-batches. Those of a tied embedding are reduced in the first stage.
template <class T>
void check_bytes(const RankGrid& grid, Run<T>& run, std::int64_t micro_batches, const std::string& what) {
  const GroupSizes sizes(run.trainer, *grid.replicas());
  const int stages = grid.shape().pipeline, others = grid.shape().data - 1;
  const bool first = grid.place().pipeline == 0;
  std::int64_t reduced = 0, gathered = 0;
  for (std::size_t g = 0; g < sizes.all.size(); ++g) {
    const bool tied = sizes.all[g] == sizes.tied;
    if (!tied || first) reduced += micro_batches * (sizes.all[g] - sizes.own[g]);
    if (tied && first) gathered += steps * others * sizes.own[g];
  }
  constexpr auto bytes = std::int64_t(sizeof(compute_t<T>));
  const auto expected = [](std::int64_t numbers) { return static_cast<std::uint64_t>(numbers * bytes); };
  BOOST_TEST(sent_as(*grid.replicas(), "gradients") == expected(reduced + gathered), what);
  if (stages == 1) return;
  const Communicator& pipeline = *grid.pipeline()->ranks();
  BOOST_TEST(sent_as(pipeline, "gradients") == expected(steps * sizes.tied), what);
  const bool sends = grid.place().pipeline + 1 == stages;
  BOOST_TEST(
      sent_as(pipeline, "gradients of the embedding") == expected(sends ? micro_batches * sizes.tied : 0),
      what);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pipeline_shards)

// Gradients of each micro-batch are reduced when they are complete. Ranks along `data` have as many micro-batches, or some
// have one less, or none; the last one is cut short.
BOOST_AUTO_TEST_CASE(stages_compute_what_one_rank_does) {
  const auto ranks = world();
  for (int stages = 2; stages <= ranks->size(); ++stages) {
    if (ranks->size() % stages != 0) continue;
    const int data = ranks->size() / stages;
    const RankGrid grid(ranks, {.data = data, .pipeline = stages});
    for (const Order& order : orders)
      for (const Kind& kind : {kinds[1], kept_for(order, kinds[2])}) {
        const LlamaConfig config = deep_model(kind, stages * order.parts);
        for (const std::int64_t sequences :
             data > 1 ? std::vector<std::int64_t>{1, 3, 5, 7} : std::vector<std::int64_t>{7}) {
          TrainerOptions options = options_of(kind);
          const Run<double> alone(options, config, 0, sequences);
          options.parallel = {.ranks = grid.replicas(), .zero = ZeroStage::gradients};
          options.pipeline = pipeline_on(grid.pipeline(), order);
          const Dealt dealt(sequences, data, grid.place().data);
          Run<double> together(options, config, dealt.first, dealt.count, dealt.in_turns);
          check_close_to(alone, together,
                         std::to_string(data) + " x " + std::to_string(stages) + ", " + kind.name + ", " +
                             name_of_order(order) + ", " + std::to_string(sequences));
        }
      }
  }
}

// With ZB-H1 the gradients of adapters are complete in `backward_weights`, also of micro-batches that only other ranks have.
BOOST_AUTO_TEST_CASE(ranks_with_fewer_micro_batches_wait_where_others_put_off) {
  const auto ranks = world();
  const RankGrid grid = shared_stages(ranks);
  const int data = grid.shape().data;
  for (const std::int64_t sequences : {1, 5}) {
    TrainerOptions options = options_of(kinds[1]);
    options.layer.lora = LoraConfig::all(2, 3);
    const LlamaConfig config = deep_model(kinds[1], grid.shape().pipeline);
    const Run<double> alone(options, config, 0, sequences);
    options.parallel = {.ranks = grid.replicas(), .zero = ZeroStage::gradients};
    options.pipeline = pipeline_on(grid.pipeline(), orders[3]);
    const Dealt dealt(sequences, data, grid.place().data);
    Run<double> together(options, config, dealt.first, dealt.count, dealt.in_turns);
    check_close_to(alone, together, std::to_string(sequences));
  }
}

// In the fixed order stages compute the bits of one rank. With a tied embedding the last one sends its gradient of each
// micro-batch to the first, whose ranks reduce it and gather the sum.
BOOST_AUTO_TEST_CASE_TEMPLATE(the_fixed_order_has_the_bits_of_one_rank, T, Scalars) {
  // Over the types, each schedule has both models.
  std::size_t turn = sizeof(T) / 4;
  for (const Order& order : orders) {
    const Kind kind = turn++ % 2 == 0 ? kinds[1] : kept_for(order, kinds[2]);
    const RankGrid grid = shared_stages(world());
    const int data = grid.shape().data;
    const LlamaConfig config = deep_model(kind, grid.shape().pipeline * order.parts);
    if (grid.shape().pipeline > 1 && needs_overtaking(config, order) && world()->keeps_order()) continue;
    TrainerOptions options = options_of(kind);
    options.layer.accumulate = false;
    options.parallel = {.fixed_order = true, .micro_batches = 4};
    const Run<T> alone(options, config, 0, 8);
    options.parallel = {
        .ranks = grid.replicas(), .zero = ZeroStage::gradients, .fixed_order = true, .micro_batches = 4 / data};
    options.pipeline = pipeline_on(grid.pipeline(), order);
    const Dealt dealt(8, data, grid.place().data);
    Run<T> together(options, config, dealt.first, dealt.count, dealt.in_turns);
    const std::string what = std::to_string(data) + " along data, " + kind.name + ", " + name_of_order(order);
    check_bits_of(alone, together, what);
    check_forecast(options, config, grid, together);
    check_bytes(grid, together, steps * 4 / data, what);
  }
}

// The sums of a shard, in each part the gradients of a layer, and those of embedding, last norm and head.
BOOST_AUTO_TEST_CASE(ranks_keep_what_the_forecast_says_and_no_more) {
  const auto ranks = world();
  if (ranks->size() == 1) return;
  const RankGrid grid = shared_stages(ranks);
  for (const Order& order : orders)
    for (const Kind& kind : {kinds[0], kinds[1]}) {
      TrainerOptions options = options_of(kind);
      const LlamaConfig config = deep_model(kind, 2 * ranks->size() * order.parts);
      options.parallel = {.ranks = grid.replicas(), .zero = ZeroStage::gradients};
      options.pipeline = pipeline_on(grid.pipeline(), order);
      Run<bf16> run(options, config, 0, 4);
      const GroupSizes sizes(run.trainer, *grid.replicas());
      const std::int64_t sums = std::accumulate(sizes.own.begin(), sizes.own.end(), std::int64_t(0));
      const auto gradients = static_cast<std::int64_t>(run.ledger->peak(MemoryClass::gradients));
      // Arrays begin at multiples of some bytes.
      BOOST_TEST(gradients >= 4 * (sums + sizes.at_a_time));
      BOOST_TEST(gradients <= 4 * (sums + sizes.at_a_time) + sizes.arrays * 256, name_of_order(order));
      check_forecast(options, config, grid, run);
    }
}

// The gradients of each micro-batch are reduced, those of a tied embedding once a step.
BOOST_AUTO_TEST_CASE(bytes_of_shards_are_those_of_the_formula) {
  for (const Order& order : orders)
    for (const Kind& kind : {kinds[0], kinds[1]}) {
      const auto ranks = world();
      const RankGrid grid = shared_stages(ranks);
      TrainerOptions options = options_of(kind);
      options.parallel = {.ranks = grid.replicas(), .zero = ZeroStage::gradients};
      options.pipeline = pipeline_on(grid.pipeline(), order);
      const auto ledger = Ledger::create();
      Trainer<Exec, double> trainer(deep_model(kind, ranks->size() * order.parts), options, *ledger);
      trainer.prepare(Exec());
      (void)trainer.step(Exec(), random_sequences(3 * batch, seq_len));
      const std::uint64_t reduced = sent_as(*grid.replicas(), "gradients"),
                          between_ends = sent_as(*grid.pipeline()->ranks(), "gradients");
      const GroupSizes sizes(trainer, *grid.replicas());
      std::int64_t foreign = 0;
      for (std::size_t g = 0; g < sizes.all.size(); ++g)
        foreign += (sizes.all[g] == sizes.tied ? 1 : 3) * (sizes.all[g] - sizes.own[g]);
      BOOST_TEST(reduced == static_cast<std::uint64_t>(foreign) * sizeof(double), name_of_order(order));
      BOOST_TEST(between_ends == static_cast<std::uint64_t>(sizes.tied) * sizeof(double));
      if (grid.replicas()->size() > 1) BOOST_TEST(reduced > 0u);
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
