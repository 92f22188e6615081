// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <random>
#include <string>

#include "kformer/model/decoder_layer.hpp"
#include "kformer/ops/quantized.hpp"
#include "model/layer_reference.hpp"
#include "support/distance.hpp"
#include "support/every_kernel.hpp"

/// \file
/// A decoder layer with inputs for tests.

namespace kformer::Testing {

/// The extents of a layer's published parameters, by name.
inline std::map<std::string, std::vector<std::int64_t>> parameter_extents(const LlamaConfig& c,
                                                                          const LoraConfig& lora = {}) {
  const std::int64_t q = c.attention_size(), kv = c.num_key_value_heads * c.head_dim;
  std::map<std::string, std::vector<std::int64_t>> all{
      {"input_layernorm.weight", {c.hidden_size}},
      {"self_attn.q_proj.weight", {q, c.hidden_size}},
      {"self_attn.k_proj.weight", {kv, c.hidden_size}},
      {"self_attn.v_proj.weight", {kv, c.hidden_size}},
      {"self_attn.o_proj.weight", {c.hidden_size, q}},
      {"post_attention_layernorm.weight", {c.hidden_size}},
      {"mlp.gate_proj.weight", {c.intermediate_size, c.hidden_size}},
      {"mlp.up_proj.weight", {c.intermediate_size, c.hidden_size}},
      {"mlp.down_proj.weight", {c.hidden_size, c.intermediate_size}}};
  if (c.attention_bias) {
    all["self_attn.q_proj.bias"] = {q};
    all["self_attn.k_proj.bias"] = all["self_attn.v_proj.bias"] = {kv};
  }
  if (c.qk_norm) all["self_attn.q_norm.weight"] = all["self_attn.k_norm.weight"] = {c.head_dim};
  for (std::size_t i = 0; i < lora.targets.size(); ++i) {
    const std::string name = (i < 4 ? "self_attn." : "mlp.") + std::string(names_of<Projection>[i]);
    const std::int64_t rank = lora.targets[i].rank;
    if (rank == 0) continue;
    const auto extents = all.at(name + ".weight");
    all[name + ".lora_A.weight"] = {rank, extents[1]};
    all[name + ".lora_B.weight"] = {extents[0], rank};
    if (lora.magnitudes) all[name + ".lora_magnitude_vector"] = {extents[0]};
  }
  return all;
}

/// A layer's configuration, its weights and what goes in.
struct LayerInputs {
  LlamaConfig config;
  LayerShape shape;
  NamedTensors<double> weights;
  HostTensor<double> x, dy;
  LoraConfig lora{};
  NamedTensors<double> masks{};                            ///< of dropout, by the name of the map
  WeightFormats formats{};                                 ///< of weights that stay quantised
  std::map<std::string, std::vector<std::byte>> blocks{};  ///< of those, whose values are in `weights`

  /// Quantises weights, whose values become what their blocks say.
  void quantize(const WeightFormats& which) {
    formats = which;
    for (const auto& [name, format] : formats) {
      HostTensor<double>& w = weights.at(name);
      const std::int64_t rows = w.extent(0), columns = w.extent(1);
      // Three values, as ternary weights have them.
      if (is_ternary(format))
        for (double& v : w.values()) v = v > 0.07 ? 0.125 : v < -0.07 ? -0.125 : 0;
      TestTensor<Exec, double> values({rows, columns});
      values.fill([&](std::size_t i) { return w.values()[i]; });
      const Kokkos::View<std::byte*, Exec::memory_space> packed("kformer::Testing::packed",
                                                                quantized_bytes(format, rows, columns));
      const QuantizedOutput matrix{format, packed.data(), rows, columns};
      kformer::quantize(Exec(), values.view<2>(), matrix);
      dequantize(Exec(), matrix, values.view<2>());
      Exec().fence("kformer::Testing::quantize");
      w = values.read<double>();
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, packed);
      blocks[name].assign(host.data(), host.data() + host.size());
    }
  }

  /// Random values: norm weights around one, matrices that keep the size of what they multiply.
  static LayerInputs random(const LlamaConfig& config, LayerShape shape, unsigned seed = 20260101,
                            const LoraConfig& lora = {}) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal;
    const auto fill = [&](HostTensor<double>& t, double scale, double shift) {
      for (double& v : t.values()) v = shift + scale * normal(generator);
    };
    LayerInputs all{config,
                    shape,
                    {},
                    HostTensor<double>({shape.rows(), config.hidden_size}),
                    HostTensor<double>({shape.rows(), config.hidden_size}),
                    lora};
    fill(all.x, 1, 0);
    fill(all.dy, 1, 0);
    for (const auto& [name, extents] : parameter_extents(config, lora)) {
      auto& t = all.weights[name];
      if (extents.size() == 1) {
        t = HostTensor<double>({extents[0]});
        fill(t, 0.2, name.ends_with("bias") ? 0 : 1);
      } else {
        t = HostTensor<double>({extents[0], extents[1]});
        fill(t, 1 / std::sqrt(static_cast<double>(extents[1])), 0);
      }
    }
    return all;
  }

  /// Every value rounded to T.
  template <class T>
  LayerInputs rounded() const {
    LayerInputs copy = *this;
    const auto round = [](HostTensor<double>& t) {
      for (double& v : t.values()) v = stored<T>(v);
    };
    round(copy.x);
    round(copy.dy);
    for (auto& [name, t] : copy.weights)
      if (!formats.contains(name)) round(t);
    return copy;
  }

  /// The references' result on these inputs.
  template <class Real, class Store>
  LayerResult<Real> reference() const {
    NamedTensors<Real> w, m;
    for (const auto& [name, t] : weights) w[name] = converted<Real>(t);
    for (const auto& [name, t] : masks) m[name] = converted<Real>(t);
    return layer_reference<Real, Store>(config, shape.batch, shape.seq_len, w, converted<Real>(x),
                                        converted<Real>(dy), lora, m);
  }

 private:
  template <class Real>
  static HostTensor<Real> converted(const HostTensor<double>& t) {
    auto r = t.rank() == 1 ? HostTensor<Real>({t.extent(0)}) : HostTensor<Real>({t.extent(0), t.extent(1)});
    for (std::size_t i = 0; i < r.values().size(); ++i) r.values()[i] = static_cast<Real>(t.values()[i]);
    return r;
  }
};

/// A contiguous tensor in the space's memory as a one-dimensional View.
template <class T>
auto flat_view(const TensorRef& r) {
  return Kokkos::View<T*, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
      static_cast<T*>(r.data), static_cast<std::size_t>(r.size()));
}

/// Writes values into a parameter, rounded to T.
template <class T>
void write_parameter(const TensorRef& to, const HostTensor<double>& values) {
  const auto device = flat_view<T>(to);
  const auto host = Kokkos::create_mirror_view(device);
  BOOST_REQUIRE(host.size() == values.values().size());
  for (std::size_t i = 0; i < host.size(); ++i) host(i) = T(static_cast<compute_t<T>>(values.values()[i]));
  Kokkos::deep_copy(device, host);
}

/// The part that a rank has of a whole array.
inline HostTensor<double> part_of_array(const HostTensor<double>& whole, const Parameter& p) {
  if (!p.slice.divides()) return whole;
  const std::int64_t rows = p.weight.extent[0], columns = p.weight.rank > 1 ? p.weight.extent[1] : 1;
  const std::int64_t width = p.slice.axis == 1 ? p.slice.whole : columns;
  const std::int64_t row0 = p.slice.axis == 0 ? p.slice.begin : 0,
                     column0 = p.slice.axis == 1 ? p.slice.begin : 0;
  HostTensor<double> part =
      p.weight.rank > 1 ? HostTensor<double>({rows, columns}) : HostTensor<double>({rows});
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      part.values()[static_cast<std::size_t>(i * columns + j)] =
          whole.values()[static_cast<std::size_t>((row0 + i) * width + column0 + j)];
  return part;
}

/// Writes the blocks of a weight that stays quantised.
inline void write_blocks(const QuantizedOutput& to, const std::vector<std::byte>& blocks) {
  BOOST_REQUIRE(blocks.size() == quantized_bytes(to.format, to.rows, to.cols));
  using Bytes = Kokkos::View<std::byte*, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const Kokkos::View<const std::byte*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> from(
      blocks.data(), blocks.size());
  Kokkos::deep_copy(Bytes(to.data, blocks.size()), from);
}

/// The gradient of a parameter, stored as C.
template <class Real, class C>
HostTensor<Real> read_gradient(const Parameter& p) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, flat_view<C>(p.gradient));
  TensorRef there = p.gradient;
  there.data = host.data();
  return kformer::Impl::read_tensor<Real>(there);
}

/// A layer that holds these inputs and has its output, gradients and ledger at hand.
template <class T>
class LayerUnderTest {
 public:
  using C = compute_t<T>;

  LayerUnderTest(const LayerInputs& inputs, AttentionAlgorithm algorithm, LayerMode mode = LayerMode::training,
                 const Exec& exec = Exec(), Precision compute = Precision::storage,
                 Recompute recompute = Recompute::pointwise)
      : m_exec(exec),
        m_ledger(Ledger::create()),
        m_layer(inputs.config, inputs.shape,
                {.attention = algorithm,
                 .mode = mode,
                 .compute = compute,
                 .recompute = recompute,
                 .lora = inputs.lora,
                 .formats = inputs.formats},
                *m_ledger) {
    const std::int64_t rows = inputs.shape.rows(), hidden = inputs.config.hidden_size;
    for (auto* t : {&m_x, &m_y, &m_dy, &m_dx}) *t = TestTensor<Exec, T>({rows, hidden});
    const auto& x = inputs.x.values();
    m_x.fill([&](std::size_t i) { return static_cast<C>(x[i]); });
    write_output_gradient(inputs.dy);
    for (const Parameter& p : m_layer.parameters()) write_parameter<T>(p.weight, inputs.weights.at(p.name));
    for (const Parameter& p : m_layer.adapters()) write_parameter<T>(p.weight, inputs.weights.at(p.name));
    for (const WeightSlot& slot : m_layer.weights())
      if (slot.is_quantized()) write_blocks(slot.quantized, inputs.blocks.at(slot.name));
    m_layer.prepare(m_exec);
    fence();
  }

  /// Writes dy times a factor, rounded to T.
  void write_output_gradient(const HostTensor<double>& dy, double factor = 1) {
    m_dy.fill([&](std::size_t i) { return static_cast<C>(factor * dy.values()[i]); });
  }
  void zero_gradients() {
    m_layer.zero_gradients(m_exec);
    fence();
  }
  void forward() {
    m_layer.forward(m_exec, m_x.template view<2>(), m_y.template view<2>());
    fence();
  }
  void backward() {
    m_layer.backward(m_exec, m_x.template view<2>(), m_dy.template view<2>(), m_dx.template view<2>());
    fence();
  }

  DecoderLayer<Exec, T>& layer() { return m_layer; }
  const DecoderLayer<Exec, T>& layer() const { return m_layer; }
  const Ledger& ledger() const { return *m_ledger; }
  const TestTensor<Exec, T>& y() const { return m_y; }
  const TestTensor<Exec, T>& dx() const { return m_dx; }

  /// A parameter gradient.
  template <class Real>
  HostTensor<Real> gradient(const Parameter& p) const {
    return read_gradient<Real, C>(p);
  }

  /// The bits of everything the layer returns.
  std::vector<std::vector<unsigned char>> bits() const {
    std::vector<std::vector<unsigned char>> all{m_y.bits(), m_dx.bits()};
    for (const Parameter& p : m_layer.parameters()) {
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, flat_view<C>(p.gradient));
      const auto* bytes = reinterpret_cast<const unsigned char*>(host.data());
      all.emplace_back(bytes, bytes + host.size() * sizeof(C));
    }
    return all;
  }

  bool guards_intact() const {
    return m_x.guards_intact() && m_y.guards_intact() && m_dy.guards_intact() && m_dx.guards_intact();
  }

 private:
  void fence() const { m_exec.fence("kformer::Testing::layer"); }

  Exec m_exec;
  std::shared_ptr<Ledger> m_ledger;
  DecoderLayer<Exec, T> m_layer;
  TestTensor<Exec, T> m_x, m_y, m_dy, m_dx;
};

/// Runs a layer forward and backward, and judges its results and the gradients of what learns.
template <class T>
void check_layer(const LayerInputs& inputs, AttentionAlgorithm algorithm,
                 const LayerResult<naive_t<T>>& expected) {
  LayerUnderTest<T> run(inputs, algorithm);
  run.forward();
  run.backward();
  check_close("y", run.y(), expected.y);
  check_close("dx", run.dx(), expected.dx);
  for (const Parameter& p : inputs.lora.any() ? run.layer().adapters() : run.layer().parameters())
    check_close<compute_t<T>>(p.name, run.template gradient<oracle_t<T>>(p), expected.gradients.at(p.name));
  BOOST_TEST(run.guards_intact());
}

/// What a layer may recompute.
inline constexpr Recompute policies[] = {Recompute::none, Recompute::pointwise, Recompute::layer};

/// Requires that recomputation changes no bit of what a layer with adapters returns, although another one, whose
/// weights are dense, runs in between on the memory that both share. With a draw their adapters have dropout.
template <class T>
void check_recomputation(const LayerInputs& inputs, const std::optional<DropoutDraw>& draw = {}) {
  std::map<Recompute, std::vector<std::vector<unsigned char>>> bits;
  for (const Recompute policy : policies) {
    const auto ledger = Ledger::create();
    LayerOptions options{.recompute = policy, .lora = inputs.lora, .formats = inputs.formats};
    DecoderLayer<Exec, T> first(inputs.config, inputs.shape, options, *ledger);
    options.formats = {};
    DecoderLayer<Exec, T> second(inputs.config, inputs.shape, options, *ledger, &first);
    std::vector<TestTensor<Exec, T>> t;
    for (int i = 0; i < 5; ++i) t.emplace_back(std::vector{inputs.shape.rows(), inputs.config.hidden_size});
    const auto write = [](TestTensor<Exec, T>& to, const HostTensor<double>& from) {
      to.fill([&](std::size_t i) { return static_cast<compute_t<T>>(from.values()[i]); });
    };
    write(t[0], inputs.x), write(t[3], inputs.dy);
    std::int64_t number = 0;
    for (auto* layer : {&first, &second}) {
      for (const auto& all : {layer->parameters(), layer->adapters()})
        for (const Parameter& p : all) write_parameter<T>(p.weight, inputs.weights.at(p.name));
      for (const WeightSlot& slot : layer->weights())
        if (slot.is_quantized()) write_blocks(slot.quantized, inputs.blocks.at(slot.name));
      layer->prepare(Exec());
      layer->set_dropout(draw, number++);
    }
    const auto view = [&](int i) { return t[static_cast<std::size_t>(i)].template view<2>(); };
    first.forward(Exec(), view(0), view(1));
    second.forward(Exec(), view(1), view(2));
    second.backward(Exec(), view(1), view(3), view(4));
    first.backward(Exec(), view(0), view(4), view(3));
    Exec().fence("kformer::Testing::recomputation");
    bits[policy] = {t[2].bits(), t[3].bits()};
    for (auto* layer : {&first, &second})
      for (const Parameter& p : layer->adapters()) {
        const auto g = read_gradient<double, compute_t<T>>(p).values();
        const auto* bytes = reinterpret_cast<const unsigned char*>(g.data());
        bits[policy].emplace_back(bytes, bytes + g.size() * sizeof(double));
      }
  }
  BOOST_TEST((bits[Recompute::none] == bits[Recompute::pointwise]));
  BOOST_TEST((bits[Recompute::none] == bits[Recompute::layer]));
}

/// s of the adapter of a map such as "self_attn.q_proj".
inline double scale_of(const LoraConfig& lora, const std::string& map) {
  for (std::size_t i = 0; i < lora.targets.size(); ++i)
    if (map.ends_with(names_of<Projection>[i])) return lora.scale(static_cast<Projection>(i));
  return 0;
}

/// Equal but for the order of sums in double.
inline void check_equal(const std::string& what, const HostTensor<double>& found,
                        const HostTensor<double>& expected) {
  check_near(what, found.values(), expected.values(), 1e-12);
}

}  // namespace kformer::Testing
