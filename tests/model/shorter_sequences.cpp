// SPDX-License-Identifier: MIT
// Models and layers that take shorter sequences than they have memory for.
#include <cstring>
#include <string>

#include "model/layer_run.hpp"
#include "model/model_cases.hpp"
#include "model/model_run.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

using NamedSchedule = std::pair<std::string, RecomputeSchedule>;

std::vector<NamedSchedule> schedules(std::int64_t layers) {
  std::vector<NamedSchedule> all;
  for (const Recompute kind : {Recompute::none, Recompute::pointwise, Recompute::layer, Recompute::offload})
    all.emplace_back(name_of(kind), RecomputeSchedule::uniform(kind, layers));
  all.emplace_back("nested", RecomputeSchedule::uniform(Recompute::nested, layers));
  return all;
}

/// Equal, NaN included.
bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

template <class T>
void check_same(ModelUnderTest<T>& found, ModelUnderTest<T>& expected) {
  for (auto* run : {&found, &expected}) {
    run->model().zero_gradients(Exec());
    run->forward();
    run->backward();
  }
  BOOST_TEST(same_bits(found.logits().template read<double>().values(),
                       expected.logits().template read<double>().values()));
  BOOST_TEST(same_bits(found.loss().template read<double>().values(),
                       expected.loss().template read<double>().values()));
  for (const Parameter& p : expected.model().parameters()) {
    const auto of = [&](ModelUnderTest<T>& run) {
      for (const Parameter& q : run.model().parameters())
        if (q.name == p.name) return run.template gradient<double>(q).values();
      return std::vector<double>();
    };
    BOOST_TEST(same_bits(of(found), of(expected)), p.name);
  }
}

/// A model of one layer.
const LlamaConfig one_layer = [] {
  LlamaConfig config = small_model();
  config.num_hidden_layers = 1;
  return config;
}();

}  // namespace

BOOST_AUTO_TEST_SUITE(shorter_sequences)

// Without `accumulate` gradients lie over what layers behind have saved.
BOOST_AUTO_TEST_CASE_TEMPLATE(have_the_bits_of_a_model_of_their_length, T, Scalars) {
  Impl::hosts_may_offload = true;
  for (const ModelCase& c : model_cases()) {
    const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
    const auto check = [&](AttentionAlgorithm algorithm, const RecomputeSchedule& schedule, bool accumulate) {
      const auto with_room = [&](std::int64_t room) {
        return ModelUnderTest<T>(inputs, LayerMode::training, algorithm, schedule, {}, accumulate, room);
      };
      auto expected = with_room(0), found = with_room(23);
      check_same(found, expected);
      check_same(found, expected);  // a second step must not find what the first left behind
    };
    const std::int64_t layers = c.config.num_hidden_layers;
    for (const auto& [name, schedule] : schedules(layers))
      BOOST_TEST_CONTEXT(c.name << ", " << name) check(AttentionAlgorithm::flash, schedule, false);
    BOOST_TEST_CONTEXT(c.name << ", standard attention")
    check(AttentionAlgorithm::standard, RecomputeSchedule::uniform(Recompute::pointwise, layers), true);
  }
  Impl::hosts_may_offload = false;
}

// What a change of the length leaves behind is not read.
BOOST_AUTO_TEST_CASE_TEMPLATE(may_be_longer_again, T, Scalars) {
  Impl::hosts_may_offload = true;
  const ModelInputs shorter = ModelInputs::random(small_model(), {2, 7}),
                    longer = ModelInputs::random(small_model(), {2, 30});
  for (const auto& [name, schedule] : schedules(small_model().num_hidden_layers)) BOOST_TEST_CONTEXT(name) {
      const auto make = [&](const ModelInputs& inputs) {
        return ModelUnderTest<T>(inputs, LayerMode::training, AttentionAlgorithm::flash, schedule, {}, false);
      };
      auto expected = make(longer), found = make(longer);
      TestTensor<Exec, std::int32_t> ids({shorter.shape.rows()});
      ids.fill([&](std::size_t i) { return shorter.ids[i]; });
      for (const std::int64_t seq_len : {7, 14, 1}) {
        found.model().use_seq_len(seq_len);
        if (seq_len == 7) found.model().forward(Exec(), ids.template view<1>());
      }
      found.model().use_seq_len(30);
      check_same(found, expected);
    }
  Impl::hosts_may_offload = false;
}

// In inference the states take turns in two arrays.
BOOST_AUTO_TEST_CASE_TEMPLATE(also_in_inference, T, Scalars) {
  for (const ModelCase& c : model_cases()) {
    const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
    const auto schedule = RecomputeSchedule::uniform(Recompute::pointwise, c.config.num_hidden_layers);
    const auto logits = [&](std::int64_t room) {
      ModelUnderTest<T> run(inputs, LayerMode::inference, AttentionAlgorithm::flash, schedule, {}, true, room);
      run.forward();
      return run.logits().template read<double>().values();
    };
    BOOST_TEST(same_bits(logits(23), logits(0)), c.name);
  }
}

// 600 rows have two chunks of 300 logits, and 512 rows would have one chunk.
BOOST_AUTO_TEST_CASE(need_no_more_logits_at_once) {
  const ModelInputs inputs = ModelInputs::random(one_layer, {2, 256});
  const auto schedule = RecomputeSchedule::uniform(Recompute::pointwise, 1);
  ModelUnderTest<double> run(inputs, LayerMode::inference, AttentionAlgorithm::flash, schedule, {}, true, 44),
      expected(inputs, LayerMode::inference, AttentionAlgorithm::flash, schedule);
  run.forward();
  expected.forward();
  BOOST_TEST(same_bits(run.loss().read<double>().values(), expected.loss().read<double>().values()));
}

// The gradients of a norm are summed in blocks, of which 64 rows have 64 and 65 rows have 33.
BOOST_AUTO_TEST_CASE(may_need_more_workspace_than_longer_ones) {
  const auto ledger = Ledger::create();
  LlamaModel<Exec, float> model(one_layer, {1, 65}, {}, *ledger);
  BOOST_TEST(model.has_room_for(65));
  BOOST_TEST(!model.has_room_for(64));
  BOOST_TEST(model.has_room_for(32));
  check_error<NotSupported>(
      [&] { model.use_seq_len(64); },
      "kformer::LlamaModel::use_seq_len: there is no room for sequences of 64 tokens; see has_room_for");
}

BOOST_AUTO_TEST_CASE(errors_say_what_to_do) {
  const ModelInputs inputs = ModelInputs::random(one_layer, {2, 7});
  ModelUnderTest<float> run(inputs);
  const std::string range = "::use_seq_len: seq_len must be from 1 to 7, that of the constructor, got ";
  DecoderLayer<Exec, float> layer(one_layer, {2, 7}, {}, *Ledger::create());
  for (const std::int64_t seq_len : {0, 8}) {
    check_error<NotSupported>([&] { run.model().use_seq_len(seq_len); },
                              "kformer::LlamaModel" + range + std::to_string(seq_len));
    check_error<NotSupported>([&] { layer.use_seq_len(seq_len); },
                              "kformer::DecoderLayer" + range + std::to_string(seq_len));
  }
  run.forward();
  run.model().use_seq_len(7);
  run.forward();
  run.model().use_seq_len(5);
  run.model().use_seq_len(7);
  check_error<NotSupported>(
      [&] { run.backward(); },
      "kformer::LlamaModel::backward: each forward allows one backward; call forward first");
  run.model().use_seq_len(5);
  check_error<DimensionMismatch>(
      [&] { run.forward(); }, "kformer::LlamaModel::forward: extents do not match: ids[14]; expected ids[10]");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
