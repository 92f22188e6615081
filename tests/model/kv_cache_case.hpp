// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kformer/model/kv_cache.hpp"
#include "model/kv_cache/slot_arrays.hpp"
#include "support/every_kernel.hpp"
#include "support/references.hpp"

/// \file
/// Caches under test: their inputs, their results, and the expected results.

namespace kformer::Testing {

/// Heads of a model with two layers.
struct KvHeads {
  std::int64_t q_heads, kv_heads, head_dim;
};

inline LlamaConfig kv_config(KvHeads heads, std::int64_t sliding_window = 0) {
  return {.hidden_size = 8,
          .intermediate_size = 8,
          .num_attention_heads = heads.q_heads,
          .num_key_value_heads = heads.kv_heads,
          .head_dim = heads.head_dim,
          .sliding_window = sliding_window};
}

/// Which text a sequence is fed with: the vectors of a token depend only on the text and the position.
struct KvToken {
  unsigned text;
  std::int64_t position;
};

/// A cache, all that it was fed, and all that came out.
template <class T>
class KvRun {
 public:
  using Cache = KvCache<Exec, T>;
  using Steps = std::vector<std::vector<std::int64_t>>;

  KvRun(const LlamaConfig& config, KvCacheOptions options) : m_config(config) {
    options.num_layers = layers;
    cache = Cache::create(config, options, *ledger);
    m_texts.resize(static_cast<std::size_t>(options.batch));
    m_outputs.resize(static_cast<std::size_t>(options.batch));
    for (std::size_t s = 0; s < m_texts.size(); ++s) m_text_of.push_back(static_cast<unsigned>(s));
  }

  static constexpr std::int64_t layers = 2;
  std::shared_ptr<Ledger> ledger = Ledger::create();
  std::unique_ptr<Cache> cache;
  AttentionOptions attention = {};  ///< of all layers

  /// From now on the sequence is fed with this text.
  void continue_with(std::int64_t sequence, unsigned text) { m_text_of[sequence] = text; }
  /// Tokens of this text are NaN from now on.
  void poison(unsigned text) { m_poisoned = text; }

  /// A step with so many new tokens for each sequence, through all layers.
  void step(const std::vector<std::int64_t>& counts) {
    std::vector<KvToken> tokens;
    for (std::size_t s = 0; s < counts.size(); ++s)
      for (std::int64_t i = 0; i < counts[s]; ++i)
        tokens.push_back({m_text_of[s], static_cast<std::int64_t>(m_texts[s].size()) + i});
    cache->begin_step(Exec(), counts);
    std::vector<std::vector<T>> out;
    for (std::int64_t layer = 0; layer < layers; ++layer) out.push_back(attend(layer, tokens));
    cache->end_step(Exec());
    std::size_t row = 0;
    for (std::size_t s = 0; s < counts.size(); ++s)
      for (std::int64_t i = 0; i < counts[s]; ++i, ++row) {
        m_texts[s].push_back(tokens[row]);
        m_outputs[s].push_back({});
        for (std::int64_t layer = 0; layer < layers; ++layer)
          m_outputs[s].back().push_back(
              {out[layer].begin() + row * out_size(), out[layer].begin() + (row + 1) * out_size()});
      }
  }
  void steps(const Steps& all) {
    for (const auto& counts : all) step(counts);
  }

  void fork(std::int64_t from, std::int64_t to) {
    cache->fork(Exec(), from, to);
    m_texts[to] = m_texts[from];
    m_outputs[to] = m_outputs[from];
  }
  void truncate(std::int64_t sequence, std::int64_t length) {
    cache->truncate(sequence, length);
    m_texts[sequence].resize(static_cast<std::size_t>(length));
    m_outputs[sequence].resize(static_cast<std::size_t>(length));
  }

  std::int64_t length(std::int64_t sequence) const {
    return static_cast<std::int64_t>(m_texts[sequence].size());
  }
  /// What came out for a sequence: (1, length, q_heads, head_dim).
  template <class Real>
  HostTensor<Real> output(std::int64_t layer, std::int64_t sequence) const {
    HostTensor<Real> all({1, length(sequence), m_config.num_attention_heads, m_config.head_dim});
    std::size_t at = 0;
    for (const auto& token : m_outputs[sequence])
      for (const T x : token[layer]) all.values()[at++] = static_cast<Real>(static_cast<compute_t<T>>(x));
    return all;
  }
  /// All that came out, for comparing bits.
  std::vector<unsigned char> bits(std::int64_t sequence) const {
    std::vector<unsigned char> all;
    for (const auto& token : m_outputs[sequence])
      for (const auto& row : token)
        all.insert(all.end(), reinterpret_cast<const unsigned char*>(row.data()),
                   reinterpret_cast<const unsigned char*>(row.data() + row.size()));
    return all;
  }

  /// What a sequence was fed: (1, length, heads, head_dim).
  template <class Real>
  HostTensor<Real> queries(std::int64_t layer, std::int64_t sequence) const {
    return fed<Real>(0, layer, sequence);
  }
  template <class Real>
  HostTensor<Real> keys(std::int64_t layer, std::int64_t sequence) const {
    return fed<Real>(1, layer, sequence);
  }
  template <class Real>
  HostTensor<Real> values(std::int64_t layer, std::int64_t sequence) const {
    return fed<Real>(2, layer, sequence);
  }

  /// Holds the outputs of a sequence against attention over its whole text, by the rule. `bias(b, h, i, j)`
  /// hides what the cache does not keep, if it is given.
  void check(std::int64_t sequence, const HostTensor<double>& bias = {}) const {
    AttentionOptions options = attention;
    options.causal = true;
    if (options.window == 0) options.window = m_config.sliding_window;
    check_outputs(sequence, [&](std::int64_t layer) {
      using Real = naive_t<T>;
      Impl::reference::AttentionExtraTensors<Real> extras;
      extras.bias = converted<Real>(bias);
      return Impl::reference::attention_forward<Real, T>(queries<Real>(layer, sequence),
                                                         keys<Real>(layer, sequence),
                                                         values<Real>(layer, sequence), extras, options)
          .out;
    });
  }
  /// The same against what `naive(layer)` returns, the layers together.
  template <class F>
  void check_outputs(std::int64_t sequence, F naive) const {
    using Real = oracle_t<T>;
    HostTensor<Real> got({0});
    HostTensor<naive_t<T>> rough({0});
    const auto add = [](auto& all, const auto& part) {
      all.values().insert(all.values().end(), part.values().begin(), part.values().end());
    };
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      add(got, output<Real>(layer, sequence));
      add(rough, naive(layer));
    }
    const Comparison c = compare<T>(got, exact_values(rough), rough);
    BOOST_TEST(c.ok, name_of(cache->options().kind).data()
                         << ", sequence " << sequence << " of " << length(sequence) << ": " << c.report);
  }

  template <class Real, class From>
  static HostTensor<Real> converted(const HostTensor<From>& x) {
    if (!x.present()) return {};
    HostTensor<Real> y({x.extent(0), x.extent(1), x.extent(2), x.extent(3)});
    for (std::size_t i = 0; i < x.values().size(); ++i) y.values()[i] = static_cast<Real>(x.values()[i]);
    return y;
  }

 private:
  using Space = typename Exec::memory_space;

  std::int64_t heads(int which) const {
    return which == 0 ? m_config.num_attention_heads : m_config.num_key_value_heads;
  }
  std::int64_t out_size() const { return m_config.num_attention_heads * m_config.head_dim; }

  /// q, k or v (0, 1, 2) of a token.
  const std::vector<T>& vector_of(int which, std::int64_t layer, const KvToken& token) const {
    auto& known = m_vectors[{which, layer, token.text, token.position}];
    if (!known.empty()) return known;
    std::seed_seq seed{static_cast<std::uint32_t>(which), static_cast<std::uint32_t>(layer), token.text,
                       static_cast<std::uint32_t>(token.position)};
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(0, which == 2 ? 1 : 0.5);
    for (std::int64_t i = 0; i < heads(which) * m_config.head_dim; ++i)
      known.push_back(T(static_cast<compute_t<T>>(normal(generator))));
    return known;
  }

  template <class Real>
  HostTensor<Real> fed(int which, std::int64_t layer, std::int64_t sequence) const {
    HostTensor<Real> all({1, length(sequence), heads(which), m_config.head_dim});
    std::size_t at = 0;
    for (const KvToken& token : m_texts[sequence])
      for (const T x : vector_of(which, layer, token))
        all.values()[at++] = static_cast<Real>(static_cast<compute_t<T>>(x));
    return all;
  }

  /// q, k and v are slices of one array, as a fused projection gives them.
  std::vector<T> attend(std::int64_t layer, const std::vector<KvToken>& tokens) {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const std::int64_t dim = m_config.head_dim, width = m_config.qkv_size() + 3;
    const Kokkos::View<T*, Space> qkv("qkv", static_cast<std::size_t>(rows * width)),
        out("out", static_cast<std::size_t>(rows * out_size()));
    const auto host = Kokkos::create_mirror_view(qkv);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::int64_t at = row * width;
      for (const int which : {0, 1, 2})
        for (const T x : vector_of(which, layer, tokens[row]))
          host(at++) = tokens[row].text == m_poisoned ? T(std::numeric_limits<compute_t<T>>::quiet_NaN()) : x;
    }
    Kokkos::deep_copy(qkv, host);
    const auto slice = [&](std::int64_t first, std::int64_t count) {
      return Impl::strided<T***, Exec>(qkv.data() + first, {rows, count, dim}, {width, dim, 1});
    };
    const std::int64_t q = m_config.attention_size(), kv = m_config.num_key_value_heads * dim;
    cache->attend(Exec(), layer, slice(0, heads(0)), slice(q, heads(1)), slice(q + kv, heads(2)),
                  Impl::strided<T***, Exec>(out.data(), {rows, heads(0), dim}, {out_size(), dim, 1}),
                  attention);
    const auto result = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
    return std::vector<T>(result.data(), result.data() + result.size());
  }

  LlamaConfig m_config;
  std::vector<unsigned> m_text_of;
  unsigned m_poisoned = ~0u;
  std::vector<std::vector<KvToken>> m_texts;  // by sequence
  // Sequence, token, layer.
  std::vector<std::vector<std::vector<std::vector<T>>>> m_outputs;
  mutable std::map<std::tuple<int, std::int64_t, unsigned, std::int64_t>, std::vector<T>> m_vectors;
};

/// Steps of 0, 1, 3, 17 or 64 tokens in random order that bring each sequence to its length; some sequences are
/// done before others.
inline std::vector<std::vector<std::int64_t>> random_steps(std::vector<std::int64_t> lengths, unsigned seed,
                                                           std::int64_t most = 64) {
  std::mt19937 generator(seed);
  std::vector<std::vector<std::int64_t>> steps;
  while (std::any_of(lengths.begin(), lengths.end(), [](std::int64_t n) { return n > 0; })) {
    std::vector<std::int64_t> counts;
    for (std::int64_t& left : lengths) {
      constexpr std::int64_t sizes[] = {0, 1, 3, 17, 64};
      counts.push_back(std::min({left, sizes[generator() % 5], most}));
      left -= counts.back();
    }
    steps.push_back(counts);
  }
  return steps;
}

}  // namespace kformer::Testing
