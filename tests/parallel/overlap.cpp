// SPDX-License-Identifier: MIT
#include <array>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/adamw/batches.hpp"
#include "parallel/ranks.hpp"
#include "support/errors.hpp"
#include "train/training_run.hpp"

namespace kformer::Testing {
namespace {

// Numbers of a rank, in arrays of several types and lengths.
struct Arrays {
  explicit Arrays(int rank) {
    std::vector<float> numbers;
    for (int i = 0; i < 1000; ++i) numbers.push_back(std::sin(static_cast<float>(i + 1000 * rank)));
    a = on_device(numbers);
    b = on_device(std::vector<double>(numbers.begin(), numbers.begin() + 77));
    c = on_device(std::vector<float>(numbers.rbegin(), numbers.rbegin() + 513));
  }
  std::vector<TensorRef> refs() const { return {tensor_ref(a), tensor_ref(b), tensor_ref(c)}; }
  Shards shards(int ranks) const {
    return Shards(std::vector<std::int64_t>{1000, 77, 513}, 16, ranks, std::vector<std::size_t>{1, 3});
  }

  Vector<float> a, c;
  Vector<double> b;
};

// Kernels that begin while messages of a reduction are under way, without those of the reduction.
struct Timeline {
  Timeline() : previous(Kokkos::Tools::Experimental::get_callbacks()) {
    namespace Tools = Kokkos::Tools::Experimental;
    under_way = kernels = 0;
    Tools::set_callbacks(Tools::EventSet{});
    Tools::set_create_profile_section_callback([](const char*, std::uint32_t* id) { *id = 0; });
    Tools::set_start_profile_section_callback([](std::uint32_t) { ++under_way; });
    Tools::set_stop_profile_section_callback([](std::uint32_t) { --under_way; });
    Tools::set_begin_parallel_for_callback([](const char* name, std::uint32_t, std::uint64_t*) {
      const bool of_ranks = std::string_view(name).starts_with("kformer::Collectives") ||
                            std::string_view(name).starts_with("kformer::GradientTree");
      kernels += under_way > 0 && !of_ranks;
    });
  }
  ~Timeline() { Kokkos::Tools::Experimental::set_callbacks(previous); }

  static inline int under_way = 0, kernels = 0;
  Kokkos::Tools::Experimental::EventSet previous;
};

// Does something once, when a kernel begins.
struct AtKernel {
  AtKernel(std::string_view kernel, std::function<void()> what)
      : previous(Kokkos::Tools::Experimental::get_callbacks()) {
    namespace Tools = Kokkos::Tools::Experimental;
    name = kernel;
    action = std::move(what);
    Tools::set_callbacks(Tools::EventSet{});
    Tools::set_begin_parallel_for_callback([](const char* begun, std::uint32_t, std::uint64_t*) {
      if (action && std::string_view(begun).starts_with(name)) std::exchange(action, {})();
    });
  }
  ~AtKernel() { Kokkos::Tools::Experimental::set_callbacks(previous); }

  static inline std::string_view name;
  static inline std::function<void()> action;
  Kokkos::Tools::Experimental::EventSet previous;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(overlap)

BOOST_AUTO_TEST_CASE(reductions_that_have_begun_have_the_bits_of_others) {
  const auto ledger = Ledger::create();
  for (const bool staged : {false, true})
    for (const std::size_t chunk : {1, 700, 1 << 20}) {
      const auto waiting = world(), going_on = world();
      Collectives<Exec> a(waiting, {.chunk_bytes = chunk, .staged = staged}, *ledger),
          b(going_on, {.chunk_bytes = chunk, .staged = staged}, *ledger);
      const Arrays x(waiting->rank()), y(waiting->rank());
      const Shards shards = x.shards(waiting->size());
      a.reduce_shards(Exec(), x.refs(), shards);
      b.begin_reduce_shards(Exec(), y.refs(), shards, {}, {1, 3});
      b.begin_reduce_shards(Exec(), y.refs(), shards, {}, {0, 1});
      b.poll(Exec());
      b.finish_reductions(Exec());
      BOOST_TEST(same_bits(on_host(x.a), on_host(y.a)));
      BOOST_TEST(same_bits(on_host(x.b), on_host(y.b)));
      BOOST_TEST(same_bits(on_host(x.c), on_host(y.c)));
      BOOST_TEST(waiting->log().counts()[0].bytes == going_on->log().counts()[0].bytes);
      BOOST_TEST(going_on->log().counts()[0].calls == 2u);
    }
}

// Rank 1 begins when rank 0 has seen that its message is not there, unless a stream waits for it.
BOOST_AUTO_TEST_CASE(a_rank_goes_on_while_a_message_is_late) {
  const auto late = world(), other = world();
  if (late->size() < 2 || late->rank() > 1) return;
  const Exec exec;
  const InstanceRef instance(exec);
  const int peer = 1 - late->rank();
  // Only some take memory of devices.
  const bool device = late->takes_device_memory();
  const double own = 1 + late->rank();
  const Vector<double> numbers = on_device<double>({own, 0});
  std::vector<double> host_numbers{own, 0};
  double* const data = device ? numbers.data() : host_numbers.data();
  std::byte token{};
  const Outgoing send{peer, data, sizeof own};
  const Incoming receive{peer, data + 1, sizeof own};
  late->exchange(instance, {}, {&send, 1}, {&receive, 1});  // GPUs are connected by the first
  if (late->rank() == 0) {
    late->begin(instance, {}, {&send, 1}, {&receive, 1});
    BOOST_TEST(late->poll() == (device && instance.stream() != nullptr));
    const Outgoing go{1, &token, 1};
    other->exchange(instance.with_host_memory(), {}, {&go, 1}, {});
  } else {
    const Incoming go{0, &token, 1};
    other->exchange(instance.with_host_memory(), {}, {}, {&go, 1});
    late->begin(instance, {}, {&send, 1}, {&receive, 1});
  }
  late->finish();
  BOOST_TEST(late->poll());
  BOOST_TEST((device ? on_host(numbers) : host_numbers)[1] == 2 - late->rank());
}

BOOST_AUTO_TEST_CASE(one_exchange_is_under_way_at_a_time) {
  const auto ranks = world();
  if (ranks->size() < 2) return;
  const auto ledger = Ledger::create();
  Collectives<Exec> collectives(ranks, {}, *ledger);
  const Exec exec;
  ranks->begin(InstanceRef(exec), {"reduce_shards", "gradients"}, {}, {});
  const Vector<float> x("x", 3);
  check_error<NotSupported>(
      [&] { collectives.broadcast(exec, x, 0, "weights"); },
      communicator_name() + ": broadcast of weights: rank " + std::to_string(ranks->rank()) + " of 'world' (" +
          std::to_string(ranks->size()) +
          " ranks) cannot begin: reduce_shards of gradients is under way; finish it first");
  ranks->finish();
  collectives.broadcast(exec, x, 0);
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_begin_ends_the_others_with_a_sentence) {
  const auto ledger = Ledger::create();
  const auto ranks = world(0.5);
  Collectives<Exec> impatient(ranks, {}, *ledger), patient(world(), {}, *ledger);
  if (ranks->size() > 1 && ranks->rank() != 1) {
    const Arrays x(ranks->rank());
    const Shards shards = x.shards(ranks->size());
    impatient.begin_reduce_shards(Exec(), x.refs(), shards, "gradients");
    const std::string start = communicator_name() + ": reduce_shards of gradients: rank " +
                              std::to_string(ranks->rank()) + " of 'world' (" + std::to_string(ranks->size()) +
                              " ranks) ";
    try {
      impatient.finish_reductions(Exec());
      BOOST_ERROR("nobody noticed");
    } catch (const CommunicationError& error) {
      const char* const whom = !through_nccl()     ? "data from rank 1"
                               : ranks->size() > 2 ? "one of ranks"
                                                   : "rank 1";
      BOOST_TEST(std::string(error.what()).starts_with(start + "waited 0.5 s in vain for " + whom),
                 error.what());
    }
  }
  patient.barrier(Exec());
}

// On some rank in each stage: the last one to begin finds all messages there.
BOOST_AUTO_TEST_CASE(backward_computes_while_gradients_are_under_way) {
  constexpr std::int64_t batch = 2;
  const auto ranks = world();
  const auto sequences = random_sequences(batch, TrainingRun<float>::seq_len);
  const auto kernels = [&](ZeroStage zero, bool overlap) {
    TrainerOptions options = some_trainer_options(batch);
    options.parallel = {.ranks = ranks, .zero = zero, .overlap = overlap, .bucket_bytes = 20000};
    TrainingRun<float> run(options);
    Timeline timeline;
    for (int step = 0; step < 3; ++step) BOOST_TEST(!run.step(sequences).skipped);
    const auto ledger = Ledger::create();
    const std::array own{static_cast<double>(Timeline::kernels)};
    const auto all = Collectives<Exec>(ranks, {}, *ledger).gather_values(Exec(), own);
    return std::accumulate(all.begin(), all.end(), 0.0);
  };
  for (const ZeroStage zero : {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients}) {
    BOOST_TEST(kernels(zero, false) == 0);
    BOOST_TEST((kernels(zero, true) > 0) == (ranks->size() > 1));
  }
}

// The others begin forward when rank 0 is at the end of backward, which waits for none of them.
BOOST_AUTO_TEST_CASE(backward_waits_for_no_rank) {
  constexpr std::int64_t batch = 2;  // of one micro-batch: buckets begin in the last
  const auto ranks = world(), signals = world();
  const Exec exec;
  // Kokkos waits for a stream, and so for its messages, before it tells a tool of a kernel.
  if (ranks->size() == 1 || InstanceRef(exec).stream() != nullptr) return;
  TrainerOptions options = some_trainer_options(batch);
  options.parallel = {.ranks = ranks, .zero = ZeroStage::optimizer, .overlap = true, .bucket_bytes = 1000};
  TrainingRun<float> run(options);
  const auto signal = [&] {
    std::byte token{};
    std::vector<Outgoing> go;
    std::vector<Incoming> arrives;
    for (int rank = 1; rank < ranks->size() && ranks->rank() == 0; ++rank) go.push_back({rank, &token, 1});
    if (ranks->rank() > 0) arrives.push_back({0, &token, 1});
    signals->exchange(InstanceRef(exec).with_host_memory(), {}, go, arrives);
  };
  const AtKernel hook(ranks->rank() == 0 ? "kformer::embedding_backward" : "kformer::embedding_forward",
                      signal);
  run.step(random_sequences(batch, TrainingRun<float>::seq_len));
  BOOST_TEST(!AtKernel::action);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
