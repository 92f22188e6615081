// SPDX-License-Identifier: MIT
#include "memory/advice.hpp"
#include "memory/plan_report.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <string>
#include <vector>

#include "app/command_line.hpp"
#include "io/hdf5_reader.hpp"
#include "io/scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::drivers;
using Testing::Hdf5Reader;
using Testing::put_contents;
using Testing::ScratchDirectory;

/// 1000 bytes of weights, and 10 for every token of every sequence.
class Counter final : public MemoryPlanner {
 public:
  Counter() { m_model.max_position_embeddings = 200; }
  const LanguageModelTable& model() const override { return m_model; }
  MemoryForecast forecast(const MemoryCase& point, std::optional<std::size_t>) override {
    if (point.kv_cache == KvCacheKind::int8) throw NotSupported("no such cache");
    if (point.context < range.least || point.context % range.step != 0) throw NotSupported("no such context");
    const auto cache = static_cast<std::size_t>(10 * point.batch * point.context);
    MemoryForecast f;
    f.bytes[static_cast<std::size_t>(MemoryClass::weights)] = 1000;
    f.bytes[static_cast<std::size_t>(MemoryClass::kv_cache)] = cache;
    f.total = f.bytes_in_space = 1000 + cache;
    if (point.recompute == Recompute::offload) f.bytes_in_space -= 700;
    return f;
  }
  AxisRange contexts(const MemoryCase&) const override { return range; }
  std::vector<GridForecast> grids(const MemoryCase&, std::optional<std::size_t>) override { return {}; }

  AxisRange range;

 private:
  LanguageModelTable m_model;
};

std::optional<std::string> never() { return {}; }

MemoryCase point(std::int64_t batch, std::int64_t context) {
  MemoryCase c{
      "serial", PlanPurpose::generate, DType::f32, WeightStorage::same, KvCacheKind::contiguous, 0, batch,
      context};
  return c;
}

PlannedCase trained(Recompute recompute, std::int64_t batch, std::size_t bytes, double share) {
  MemoryCase c = point(batch, 100);
  c.purpose = PlanPurpose::train;
  c.recompute = recompute;
  PlannedCase planned{.point = c, .forecast = {}, .available = 1 << 20, .unsupported = {}};
  planned.forecast.total = planned.forecast.bytes_in_space = bytes;
  planned.forecast.recompute_share = share;
  return planned;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_plan)

BOOST_AUTO_TEST_CASE(the_largest_batch_is_the_last_that_fits) {
  Counter counter;
  BOOST_TEST(planned(counter, point(1, 100), 3500).largest_batch == 2);
  BOOST_TEST(planned(counter, point(1, 100), 3000).largest_batch == 2);
  BOOST_TEST(planned(counter, point(4, 100), 2999).largest_batch == 1);
  BOOST_TEST(planned(counter, point(1, 100), 1999).largest_batch == 0);
  BOOST_TEST(planned(counter, point(1, 1), std::size_t{1} << 40).largest_batch == longest_batch);
  BOOST_TEST(planned(counter, point(1, 1), {}).largest_batch == -1);
}

BOOST_AUTO_TEST_CASE(the_policy_to_take_is_the_fastest_that_fits) {
  const std::string text =
      advice({trained(Recompute::none, 1, 2 << 20, 0), trained(Recompute::layer, 1, 1000, 0.3),
              trained(Recompute::pointwise, 1, 1 << 20, 0.02), trained(Recompute::none, 2, 3 << 20, 0),
              trained(Recompute::nested, 2, 2 << 20, 0.5), trained(Recompute::nested, 3, 2 << 20, 12.9)});
  BOOST_TEST(text ==
             "training, serial, f32, batch 1, context 100: take pointwise: 1.00 MiB of 1.00 MiB, about 2 % "
             "more time than none\n"
             "training, serial, f32, batch 2, context 100: nothing fits; the least is nested: 2.00 MiB of 1.00 "
             "MiB, about 50 % "
             "more time than none\n"
             "training, serial, f32, batch 3, context 100: nothing fits; the least is nested: 2.00 MiB of 1.00 "
             "MiB, about 1290 % more time than none\n");
}

BOOST_AUTO_TEST_CASE(of_equally_fast_policies_the_smaller_is_taken) {
  BOOST_TEST(advice({trained(Recompute::none, 1, 2000, 0), trained(Recompute::layer, 1, 1000, 0)})
                 .find("take layer") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(advice_is_for_training_that_can_run) {
  PlannedCase unsupported = trained(Recompute::offload, 1, 0, 0);
  unsupported.unsupported = "no";
  PlannedCase generation = trained(Recompute::none, 1, 0, 0);
  generation.point.purpose = PlanPurpose::generate;
  BOOST_TEST(advice({unsupported, generation}) == "");
  BOOST_TEST(
      not_counted(true, 3 << 20) ==
      "not counted: 3.00 MiB of scratch for kernels on as many threads, the program's code, Kokkos, buffers "
      "of underlying libraries, data on the host\n");
  BOOST_TEST(not_counted(false, 0) ==
             "not counted: the program's code, Kokkos, buffers of underlying libraries\n");
}

BOOST_AUTO_TEST_CASE(sequences_longer_than_the_context_of_the_model_are_noted) {
  const PlannedCase within = trained(Recompute::none, 1, 0, 0);  // 100 tokens
  PlannedCase beyond = within;
  beyond.point.context = 101;
  BOOST_TEST(context_note({within}, 100) == "");
  BOOST_TEST(context_note({beyond}, 0) == "");
  BOOST_TEST(
      context_note({within, beyond, within}, 100)
          .starts_with(
              "note: sequences have up to 101 tokens, more than max_position_embeddings = 100 of the model"));
}

// What a device offloads lies in host memory.
BOOST_AUTO_TEST_CASE(memory_of_another_space_does_not_count_against_the_limit) {
  PlannedCase offloaded = trained(Recompute::offload, 4, 900, 0.3);
  offloaded.forecast.total = 5000;
  PlannedCase kept = trained(Recompute::layer, 4, 2000, 0.3);
  for (PlannedCase* c : {&offloaded, &kept}) c->available = 1000;
  BOOST_TEST(offloaded.fits());
  BOOST_TEST(!kept.fits());
  BOOST_TEST(advice({kept, offloaded}).find("take offload: 900") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_largest_context_is_the_last_that_fits) {
  Counter counter;
  const auto c = planned(counter, point(1, 100), 1505);
  BOOST_TEST(c.forecast.total == 2000u);
  BOOST_TEST(!c.fits());
  BOOST_TEST(c.largest_context == 50);
  BOOST_TEST(planned(counter, point(2, 1), 1505).largest_context == 25);
  BOOST_TEST(planned(counter, point(1, 50), 1500).fits());
}

BOOST_AUTO_TEST_CASE(the_largest_context_is_one_that_can_be_trained) {
  Counter counter;
  counter.range = {.least = 50, .step = 6};
  const std::vector<std::pair<std::size_t, std::int64_t>> limits{{1000000, 198}, {2979, 192}, {2020, 102},
                                                                 {2019, 96},     {1540, 54},  {1539, 0}};
  for (const auto& [available, context] : limits)
    BOOST_TEST(planned(counter, point(1, 102), available).largest_context == context);
  BOOST_TEST(planned(counter, point(1, 102), 3040).largest_batch == 2);
}

BOOST_AUTO_TEST_CASE(a_context_is_no_longer_than_model_or_case) {
  Counter counter;
  BOOST_TEST(planned(counter, point(1, 300), 1000000).largest_context == 300);
  const std::vector<std::pair<std::size_t, std::int64_t>> limits{
      {1000000, 200}, {3000, 200}, {2999, 199}, {10, 0}};
  for (const auto& [available, context] : limits)
    BOOST_TEST(planned(counter, point(1, 100), available).largest_context == context);
}

BOOST_AUTO_TEST_CASE(without_knowing_what_there_is_nothing_is_said) {
  Counter counter;
  const auto c = planned(counter, point(1, 100), {});
  BOOST_TEST(c.fits());
  BOOST_TEST(c.largest_context == -1);
  BOOST_TEST(plan_report({c}, ReportFormat::table).find("budget unknown") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_plan_shows_every_class_the_budget_and_what_is_left) {
  Counter counter;
  const std::string text = plan_report(
      {planned(counter, point(1, 100), 4000), planned(counter, point(4, 100), 4000)}, ReportFormat::table);
  BOOST_TEST(text.find("budget 3.91 KiB") != std::string::npos, text);
  BOOST_TEST(text.find("weights 1000 B") == std::string::npos);
  for (const char* part : {"weights 0.98 KiB", "grads 0", "optim. 0", " cache", " total", " left",
                           "1.95 KiB  yes", "-0.98 KiB   no"})
    BOOST_TEST(text.find(part) != std::string::npos, part << " is not in\n" << text);
  const std::string csv = plan_report({planned(counter, point(4, 100), 4000)}, ReportFormat::csv);
  for (const char* column :
       {"weights_bytes", "gradients_bytes", "optimizer_bytes", "kv_cache_bytes", "activations_bytes",
        "workspace_bytes", "communication_bytes", "io_bytes", "available_bytes", "left_bytes"})
    BOOST_TEST(csv.find(column) != std::string::npos, column);
  BOOST_TEST(csv.find(",5000,-1000,no,") != std::string::npos, csv);
}

BOOST_AUTO_TEST_CASE(all_cases_are_in_the_file) {
  const ScratchDirectory directory;
  put_contents(directory / "deck.toml",
               "schema = 1\nkind = \"memory_plan\"\n[weights]\npath = \"none\"\n[sweep]\n"
               "execution_space = \"serial\"\nkv_cache = [\"contiguous\", \"int8\"]\nbatch = [1, 4]\n");
  const auto deck = load_memory_plan_deck({directory / "deck.toml", {}});
  Counter counter;
  ResultFile file(directory / "plan.h5");
  const auto cases = expand(deck.sweep, counter.model(), {"serial"});
  const auto there_is = [](const std::string&) { return std::optional<std::size_t>(4000); };
  BOOST_TEST(run_plan(counter, deck, cases, there_is, never, file) == exit_ok);
  const Hdf5Reader reader(directory / "plan.h5");
  BOOST_TEST(reader.numbers("cases/predicted_bytes") == (std::vector<double>{3000, 9000, 0, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("cases/fits") == (std::vector<double>{1, 0, 0, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("cases/largest_context") == (std::vector<double>{200, 75, -1, -1}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("cases/context")[0] == 200);
  BOOST_TEST(reader.numbers("cases/kv_cache_bytes")[1] == 8000);
  BOOST_TEST(reader.numbers("cases/available_bytes")[1] == 4000);
  BOOST_TEST(reader.texts("cases/message")[2] == "no such cache");
  for (const char* group : {"cases", "memory/classes"})
    for (const std::string& name : reader.names(group))
      BOOST_TEST(reader.has_scales(std::string(group) + "/" + name), group << "/" << name);
}

BOOST_AUTO_TEST_CASE(the_file_says_what_lies_in_the_memory_that_is_limited) {
  const ScratchDirectory directory;
  Counter counter;
  ResultFile file(directory / "plan.h5");
  MemoryCase offloads = point(1, 10);
  offloads.recompute = Recompute::offload;
  const auto there_is = [](const std::string&) { return std::optional<std::size_t>(1000); };
  BOOST_TEST(run_plan(counter, {}, {offloads, point(1, 10)}, there_is, never, file) == exit_ok);
  const Hdf5Reader reader(directory / "plan.h5");
  BOOST_TEST(reader.numbers("cases/predicted_bytes") == (std::vector<double>{1100, 1100}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("cases/space_bytes") == (std::vector<double>{400, 1100}),
             boost::test_tools::per_element());
  BOOST_TEST(reader.numbers("cases/fits") == (std::vector<double>{1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_plan_stops_between_cases) {
  const ScratchDirectory directory;
  Counter counter;
  ResultFile file(directory / "plan.h5");
  int asked = 0;
  const auto after_the_first = [&]() -> std::optional<std::string> {
    if (asked++ == 0) return {};
    return "the time is over";
  };
  const auto nothing = [](const std::string&) { return std::optional<std::size_t>(); };
  BOOST_TEST(run_plan(counter, {}, {point(1, 10), point(2, 10)}, nothing, after_the_first, file) ==
             exit_stopped);
  BOOST_TEST(Hdf5Reader(directory / "plan.h5.part").numbers("cases/batch") == std::vector<double>{1},
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_plan_without_a_supported_case_fails) {
  const ScratchDirectory directory;
  Counter counter;
  ResultFile file(directory / "plan.h5");
  MemoryCase unsupported = point(1, 10);
  unsupported.kv_cache = KvCacheKind::int8;
  const auto nothing = [](const std::string&) { return std::optional<std::size_t>(); };
  BOOST_TEST(run_plan(counter, {}, {unsupported}, nothing, never, file) == exit_nothing);
}

BOOST_AUTO_TEST_SUITE_END()
