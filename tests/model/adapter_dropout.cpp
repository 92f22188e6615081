// SPDX-License-Identifier: MIT
// Dropout of adapters, against masks that a second generator writes out.
#include "model/adapters/dropout.hpp"

#include <cmath>

#include "kformer/model/llama_model.hpp"
#include "model/adapter_layers.hpp"
#include "model/booked_memory.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

LlamaConfig small_config() {
  return {.hidden_size = 54,
          .intermediate_size = 75,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 8,
          .attention_bias = true};
}

constexpr double probability = 0.3;
constexpr DropoutDraw draw{.seed = 0x123456789abcdef, .step = 5, .first_row = 21};
constexpr std::int64_t layer_number = 3;

LoraConfig lora_with_dropout() {
  LoraConfig lora = LoraConfig::all(3, 5);
  lora[Projection::k].rank = 0;
  lora[Projection::down] = {.rank = 5, .alpha = 2};
  lora.dropout = probability;
  return lora;
}

/// Philox-4x32-10 as its authors define it: 10 rounds with multiplication in 64 bits, the key raised in between.
std::array<std::uint64_t, 4> philox_of(std::array<std::uint64_t, 4> c, std::uint64_t seed) {
  constexpr std::uint64_t mask = 0xffffffff;
  for (std::uint64_t round = 0; round < 10; ++round) {
    const std::uint64_t k0 = (seed & mask) + round * 0x9E3779B9, k1 = (seed >> 32) + round * 0xBB67AE85;
    const std::uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
    c = {((b >> 32) ^ c[1] ^ k0) & mask, b & mask, ((a >> 32) ^ c[3] ^ k1) & mask, a & mask};
  }
  return c;
}

/// 1/(1 − p) or 0 for every element, as `DropoutDraw` says.
HostTensor<double> mask_of(std::int64_t rows, std::int64_t columns, const DropoutDraw& d, std::int64_t layer,
                           std::size_t projection, double p = probability) {
  HostTensor<double> mask({rows, columns});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto words =
          philox_of({static_cast<std::uint64_t>(c / 4), static_cast<std::uint64_t>(d.first_row + r),
                     static_cast<std::uint64_t>(d.step), static_cast<std::uint64_t>(8 * layer) + projection},
                    d.seed);
      mask(r, c) =
          static_cast<double>(words[static_cast<std::size_t>(c % 4)]) < p * 4294967296.0 ? 0 : 1 / (1 - p);
    }
  return mask;
}

LayerInputs dropped_inputs(LayerShape shape, unsigned seed) {
  LayerInputs inputs = LayerInputs::random(small_config(), shape, seed, lora_with_dropout());
  for (std::size_t i = 0; i < inputs.lora.targets.size(); ++i)
    if (inputs.lora.targets[i].rank > 0)
      inputs.masks[(i < 4 ? "self_attn." : "mlp.") + std::string(names_of<Projection>[i])] =
          mask_of(shape.rows(), projection_extents(small_config(), static_cast<Projection>(i))[1], draw,
                  layer_number, i);
  return inputs;
}

/// The library's mask as numbers: what is left of ones.
std::vector<double> ones_left(std::int64_t rows, std::int64_t columns, const kformer::Impl::DropoutMask& mask) {
  TestTensor<Exec, double> ones({rows, columns}), left({rows, columns});
  ones.fill([](std::size_t) { return 1.0; });
  kformer::Impl::drop(Exec(), mask, ones.template view<2>(), left.template view<2>());
  Exec().fence("kformer::Testing::dropout");
  return left.template read<double>().values();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(adapter_dropout)

BOOST_AUTO_TEST_CASE_TEMPLATE(agrees_with_the_references, T, Scalars) {
  for (const LayerShape shape : {LayerShape{3, 7}, LayerShape{1, 33}})
    check_dropped_layer<T>(dropped_inputs(shape, 3).template rounded<T>(), draw, layer_number);
}

BOOST_AUTO_TEST_CASE(the_mask_is_that_of_the_second_generator) {
  for (const double p : {0.0, 0.05, 0.5, 0.999}) {
    const std::int64_t rows = 9, columns = 47;
    const auto found =
        ones_left(rows, columns, kformer::Impl::DropoutMask(p, draw, layer_number, Projection::up));
    const auto expected =
        mask_of(rows, columns, draw, layer_number, static_cast<std::size_t>(Projection::up), p);
    for (std::size_t i = 0; i < found.size(); ++i) BOOST_TEST((found[i] != 0) == (expected.values()[i] != 0));
  }
}

// Deviations of binomial distributions: the share that is kept, and where two masks agree.
BOOST_AUTO_TEST_CASE(masks_keep_their_share_and_are_independent) {
  const std::int64_t rows = 400, columns = 1000;
  const auto count = static_cast<double>(rows * columns);
  std::vector<std::vector<double>> all;
  const auto add = [&](const DropoutDraw& d, std::int64_t layer, Projection p) {
    all.push_back(ones_left(rows, columns, kformer::Impl::DropoutMask(probability, d, layer, p)));
  };
  add(draw, 0, Projection::q);
  add(draw, 0, Projection::k);
  add(draw, 1, Projection::q);
  add({draw.seed + 1, draw.step, draw.first_row}, 0, Projection::q);
  add({draw.seed, draw.step + 1, draw.first_row}, 0, Projection::q);
  add({draw.seed, draw.step, draw.first_row + rows}, 0, Projection::q);
  const double agree = probability * probability + (1 - probability) * (1 - probability);
  const auto near = [&](double share, double expected) {
    return std::abs(share - expected) < 5 * std::sqrt(expected * (1 - expected) / count);
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    double kept = 0;
    for (const double v : all[i]) kept += v;
    BOOST_TEST(near(kept / count, 1 - probability), i);
    for (std::size_t j = 0; j < i; ++j) {
      double same = 0;
      for (std::size_t e = 0; e < all[i].size(); ++e) same += all[i][e] == all[j][e];
      BOOST_TEST(near(same / count, agree), i << " and " << j);
    }
  }
  double neighbours = 0;
  for (std::size_t e = 1; e < all[0].size(); ++e) neighbours += all[0][e] == all[0][e - 1];
  BOOST_TEST(near(neighbours / (count - 1), agree));
}

// Rows of a step are those of its micro-batches.
BOOST_AUTO_TEST_CASE(the_mask_follows_the_row_of_the_step) {
  const std::int64_t rows = 10, columns = 21;
  DropoutDraw second = draw;
  second.first_row += 4;
  const auto all = ones_left(rows, columns, kformer::Impl::DropoutMask(probability, draw, 0, Projection::q));
  const auto end =
      ones_left(rows - 4, columns, kformer::Impl::DropoutMask(probability, second, 0, Projection::q));
  BOOST_TEST(std::equal(end.begin(), end.end(), all.begin() + 4 * columns));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(without_a_draw_nothing_is_lost, T, Scalars) {
  LayerInputs inputs = LayerInputs::random(small_config(), {2, 9}, 5, lora_with_dropout()), plain = inputs;
  plain.lora.dropout = 0;
  LayerUnderTest<T> off(inputs, AttentionAlgorithm::flash), none(plain, AttentionAlgorithm::flash),
      dropped(inputs, AttentionAlgorithm::flash);
  none.layer().set_dropout(draw, layer_number);
  dropped.layer().set_dropout(draw, layer_number);
  for (auto* run : {&off, &none, &dropped}) run->forward(), run->backward();
  BOOST_TEST((off.y().bits() == none.y().bits()));
  BOOST_TEST((off.dx().bits() == none.dx().bits()));
  BOOST_TEST((off.y().bits() != dropped.y().bits()));
  dropped.layer().set_dropout({});
  dropped.forward();
  BOOST_TEST((off.y().bits() == dropped.y().bits()));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(recomputation_gives_the_same_bits, T, Scalars) {
  LlamaConfig config = small_config();
  config.num_hidden_layers = 4;
  config.vocab_size = 31;
  const LayerShape shape{2, 5};
  const auto gradients = [&](const RecomputeSchedule& schedule) {
    const auto ledger = Ledger::create();
    LlamaModel<Exec, T> model(config, shape, {.lora = lora_with_dropout()}, *ledger, schedule);
    std::mt19937 generator(9);
    std::normal_distribution<double> normal(0, 0.2);
    for (const auto& all : {model.parameters(), model.adapters()})
      for (const Parameter& p : all) {
        HostTensor<double> values({p.weight.size()});
        for (double& v : values.values()) v = normal(generator);
        write_parameter<T>(p.weight, values);
      }
    model.prepare(Exec());
    const std::int64_t rows = shape.rows();
    TestTensor<Exec, std::int32_t> ids({rows}), targets({rows});
    TestTensor<Exec, compute_t<T>> dloss({rows}), loss({rows});
    ids.fill([](std::size_t i) { return static_cast<std::int32_t>(3 * i % 31); });
    targets.fill([](std::size_t i) { return static_cast<std::int32_t>((5 * i + 1) % 31); });
    dloss.fill([](std::size_t) { return compute_t<T>(1); });
    model.set_dropout(draw);
    model.forward(Exec(), ids.template view<1>());
    model.backward(Exec(), ids.template view<1>(), targets.template view<1>(), dloss.template view<1>(),
                   loss.template view<1>());
    Exec().fence("kformer::Testing::dropout");
    std::vector<double> all = loss.template read<double>().values();
    for (const Parameter& p : model.adapters()) {
      const auto g = read_gradient<double, compute_t<T>>(p).values();
      all.insert(all.end(), g.begin(), g.end());
    }
    return all;
  };
  const auto expected = gradients(RecomputeSchedule::uniform(Recompute::none, 4));
  for (const Recompute kind : {Recompute::pointwise, Recompute::layer, Recompute::nested})
    BOOST_TEST((gradients(RecomputeSchedule::uniform(kind, 4)) == expected), name_of(kind));
}

BOOST_AUTO_TEST_CASE(memory_is_that_of_the_forecast) {
  std::size_t with = 0, without = 0;
  for (const double p : {probability, 0.0}) {
    LoraConfig lora = lora_with_dropout();
    lora.dropout = p;
    const auto booked = check_booked_memory([&](const std::shared_ptr<Ledger>& ledger) {
      for (const Recompute policy : {Recompute::none, Recompute::pointwise, Recompute::layer})
        DecoderLayer<Exec, float>(small_config(), {2, 8}, {.recompute = policy, .lora = lora}, *ledger);
    });
    (p > 0 ? with : without) = booked.ledger->peak(MemoryClass::workspace);
  }
  // What the widest map's adapter sees, at a multiple of 64 bytes.
  BOOST_TEST(with - without == (16 * 75 * sizeof(float) + 63) / 64 * 64);
}

BOOST_AUTO_TEST_CASE(probabilities_and_modes_are_checked) {
  const auto ledger = Ledger::create();
  LoraConfig lora = lora_with_dropout();
  DecoderLayer<Exec, float> inference(small_config(), {1, 4}, {.mode = LayerMode::inference, .lora = lora},
                                      *ledger);
  check_error<NotSupported>(
      [&] { inference.set_dropout(draw); },
      "kformer::DecoderLayer::set_dropout: the layer was made for inference, which has no "
      "dropout; construct it with LayerMode::training");
  inference.set_dropout({});
  for (const double p : {-0.1, 1.0, std::nan("")}) {
    lora.dropout = p;
    BOOST_CHECK_THROW((DecoderLayer<Exec, float>(small_config(), {1, 4}, {.lora = lora}, *ledger)),
                      NotSupported);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
