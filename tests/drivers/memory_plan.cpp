// SPDX-License-Identifier: MIT
#include "memory/plan.hpp"

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
  MemoryForecast forecast(const MemoryCase& point) override {
    if (point.kv_cache == KvCacheKind::int8) throw NotSupported("no such cache");
    const auto cache = static_cast<std::size_t>(10 * point.batch * point.context);
    MemoryForecast f;
    f.bytes[static_cast<std::size_t>(MemoryClass::weights)] = 1000;
    f.bytes[static_cast<std::size_t>(MemoryClass::kv_cache)] = cache;
    f.total = 1000 + cache;
    return f;
  }

 private:
  LanguageModelTable m_model;
};

MemoryCase point(std::int64_t batch, std::int64_t context) {
  MemoryCase c{
      "serial", PlanPurpose::generate, DType::f32, WeightStorage::same, KvCacheKind::contiguous, 0, batch,
      context};
  return c;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_plan)

BOOST_AUTO_TEST_CASE(the_largest_context_is_the_last_that_fits) {
  Counter counter;
  const auto c = planned(counter, point(1, 100), 1505);
  BOOST_TEST(c.forecast.total == 2000u);
  BOOST_TEST(!c.fits());
  BOOST_TEST(c.largest_context == 50);
  BOOST_TEST(planned(counter, point(2, 1), 1505).largest_context == 25);
  BOOST_TEST(planned(counter, point(1, 50), 1500).fits());
}

BOOST_AUTO_TEST_CASE(a_context_is_no_longer_than_model_or_case) {
  Counter counter;
  BOOST_TEST(planned(counter, point(1, 100), 1000000).largest_context == 200);
  BOOST_TEST(planned(counter, point(1, 300), 1000000).largest_context == 300);
  BOOST_TEST(planned(counter, point(1, 100), 3000).largest_context == 200);
  BOOST_TEST(planned(counter, point(1, 100), 2999).largest_context == 199);
  BOOST_TEST(planned(counter, point(1, 100), 10).largest_context == 0);
}

BOOST_AUTO_TEST_CASE(without_knowing_what_there_is_nothing_is_said) {
  Counter counter;
  const auto c = planned(counter, point(1, 100), {});
  BOOST_TEST(c.fits());
  BOOST_TEST(c.largest_context == -1);
  BOOST_TEST(plan_row(c).find("?") != std::string::npos);
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
  BOOST_TEST(run_plan(counter, deck, cases, there_is, file) == exit_ok);
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

BOOST_AUTO_TEST_SUITE_END()
