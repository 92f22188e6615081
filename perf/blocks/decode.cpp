// SPDX-License-Identifier: MIT
#include <cmath>
#include <optional>
#include <span>

#include "blocks/block_cases.hpp"
#include "kformer/model/llama_decoder.hpp"

namespace kformer::perf {

namespace {

constexpr std::int64_t context = 256;  // tokens in the cache when a token is timed, at least

struct Shape {
  LlamaConfig config;
  std::optional<QuantizedFormat> format;
  Activations activations = Activations::full;
};

void count_up(const Space& exec, const Array<std::int32_t*>& numbers) {
  Kokkos::parallel_for(
      "kformer::perf::count_up", Kokkos::RangePolicy<Space>(exec, 0, static_cast<std::int64_t>(numbers.size())),
      KOKKOS_LAMBDA(std::int64_t i) { numbers(i) = static_cast<std::int32_t>(i); });
}

/// A model of random weights and one more token for it.
template <class T>
class Call {
 public:
  Call(const Space& exec, std::uint64_t seed, const Shape& s) : m_ledger(Ledger::create()) {
    DecoderOptions options{.max_rows = context, .max_positions = 2 * context, .activations = s.activations};
    if (s.format) options.formats = quantized_matrices(s);
    m_decoder = std::make_shared<LlamaDecoder<Space, T>>(s.config, options, *m_ledger);
    m_cache = KvCache<Space, T>::create(
        s.config,
        {.num_layers = s.config.num_hidden_layers, .capacity = 2 * context, .max_step_tokens = context},
        *m_ledger);
    for (const WeightSlot& slot : m_decoder->weights()) write(exec, seed++, slot);
    m_decoder->prepare(exec);
    m_ids = random_integers(exec, seed, context, s.config.vocab_size);
    count_up(exec, m_positions);
    step(exec, 0, context);
  }
  std::size_t bytes() const { return m_ledger->current_total(); }
  void launch(const Space& exec) const {
    if (m_cache->length(0) == 2 * context) m_cache->truncate(0, context);
    step(exec, m_cache->length(0), 1);
    m_decoder->logits(exec, m_row);
  }

 private:
  static WeightFormats quantized_matrices(const Shape& s) {
    const auto ledger = Ledger::create(Ledger::Mode::count);
    WeightFormats formats;
    for (const WeightSlot& slot : LlamaDecoder<Space, T>(s.config, {}, *ledger).weights())
      if (slot.dense.rank == 2) formats[slot.name] = *s.format;
    return formats;
  }
  void write(const Space& exec, std::uint64_t seed, const WeightSlot& slot) const {
    const auto scale = [](std::int64_t columns) { return 1 / std::sqrt(static_cast<double>(columns)); };
    if (slot.is_quantized()) {
      const auto x =
          random_array<float**>(exec, seed, "kformer::perf::weight", slot.quantized.rows, slot.quantized.cols);
      measure::fill_random(exec, x.data(), static_cast<std::int64_t>(x.size()), seed,
                           scale(slot.quantized.cols));
      quantize(exec, x, slot.quantized);
      exec.fence("kformer::perf: quantize");
      return;
    }
    const TensorRef& w = slot.dense;
    const bool norm = w.rank == 1;
    measure::fill_random(exec, static_cast<T*>(w.data), w.size(), seed, norm ? 0.125 : scale(w.extent[1]),
                         norm ? 1 : 0);
  }
  void step(const Space& exec, std::int64_t first_position, std::int64_t tokens) const {
    const auto range = [&](std::int64_t first) { return std::pair(first, first + tokens); };
    m_cache->begin_step(exec, std::span(&tokens, 1));
    m_decoder->step(exec, Kokkos::subview(m_ids, range(0)), Kokkos::subview(m_positions, range(first_position)),
                    *m_cache);
    m_cache->end_step(exec);
  }

  std::shared_ptr<Ledger> m_ledger;
  std::shared_ptr<LlamaDecoder<Space, T>> m_decoder;
  std::shared_ptr<KvCache<Space, T>> m_cache;
  Array<std::int32_t*> m_ids;
  Array<std::int32_t*> m_positions{"kformer::perf::positions", 2 * context};
  Array<std::int32_t*> m_row{"kformer::perf::row", 1};
};

// Every weight once, the keys and values once.
double decode_bytes(DType dtype, const Shape& s) {
  const double element = static_cast<double>(size_of(dtype));
  const LlamaConfig& c = s.config;
  const double matrices = static_cast<double>(c.model_parameter_count() -
                                              (c.tie_word_embeddings ? 0 : c.vocab_size * c.hidden_size));
  const double weight = s.format ? static_cast<double>(bytes_per_block(*s.format)) /
                                       static_cast<double>(weights_per_block(*s.format))
                                 : element;
  const double kept =
      1.5 * static_cast<double>(context * c.num_hidden_layers * 2 * c.num_key_value_heads * c.head_dim);
  return matrices * weight + kept * element;
}

Case make_case(DType dtype, const std::string& model, const Shape& s, const std::string& direction) {
  return {.block = "decode",
          .direction = direction,
          .dtype = dtype,
          .tail = model,
          .limit = Limit::memory,
          .flops = 2 * static_cast<double>(s.config.model_parameter_count()),
          .bytes = decode_bytes(dtype, s),
          .shape = {{"hidden", s.config.hidden_size},
                    {"intermediate", s.config.intermediate_size},
                    {"layers", s.config.num_hidden_layers},
                    {"vocabulary", s.config.vocab_size}},
          .make = rotating<Call>(dtype, s)};
}

}  // namespace

std::vector<Case> decode_cases(const BlockSizes& sizes) {
  std::vector<Case> cases;
  for (const auto& [name, config] : sizes.language_models) {
    for (const DType dtype : sizes.dtypes) cases.push_back(make_case(dtype, name, {config, {}}, "token"));
    for (const QuantizedFormat format : quantized_formats)
      for (const Activations activations : {Activations::full, Activations::int8}) {
        if (format == QuantizedFormat::nf4 && activations == Activations::int8) continue;  // refused
        std::string direction = std::string("token_") + to_string(format);
        if (activations == Activations::int8) direction += "_int8";
        cases.push_back(make_case(DType::f32, name, {config, format, activations}, direction));
      }
  }
  return cases;
}

}  // namespace kformer::perf
