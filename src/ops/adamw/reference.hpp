// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <limits>

#include "kformer/ops/adamw.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "ops/adamw/dynamic_map.hpp"
#include "ops/common/host_tensor.hpp"

/// \file
/// AdamW in textbook order: the oracle. See host_tensor.hpp for `Real`.

namespace kformer::Impl::reference {

/// A parameter in plain numbers; `weight` is the master weight where there is one.
template <class Real>
struct AdamWState {
  HostTensor<Real> weight, gradient, m, v;
  double weight_decay = 0;
};

/// One step. `norm` is null where it is not known.
template <class Real>
void adamw(AdamWState<Real>& s, const AdamWOptions& o, const Real* norm) {
  if (norm && !isfinite(*norm)) return;
  const Real beta1 = Real(o.beta1), beta2 = Real(o.beta2), rate = Real(o.learning_rate);
  const Real correction1 = 1 - pow(beta1, Real(o.step)), correction2 = 1 - pow(beta2, Real(o.step));
  Real scale = Real(o.gradient_scale);
  if (o.max_norm > 0) scale *= std::min(Real(1), Real(o.max_norm) / (*norm * scale + Real(1e-6)));
  for (std::size_t i = 0; i < s.weight.values().size(); ++i) {
    const Real g = s.gradient.values()[i] * scale;
    Real &m = s.m.values()[i], &v = s.v.values()[i], &w = s.weight.values()[i];
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const Real mean = m / correction1, square = v / correction2;
    w -= rate * (mean / (sqrt(square) + Real(o.eps)) + Real(s.weight_decay) * w);
  }
}

template <class Real>
Real gradient_norm(const std::vector<HostTensor<Real>>& gradients) {
  Real sum = 0;
  for (const HostTensor<Real>& g : gradients)
    for (const Real x : g.values()) sum += x * x;
  return sqrt(sum);
}

/// The code of the nearest value, by looking at all of them.
template <MapSign sign>
int nearest_code(float x) {
  int best = 0;
  double distance = std::numeric_limits<double>::infinity();
  for (int code = sign == MapSign::without && x > 0 ? 1 : 0; code < 256; ++code) {
    const double d = std::abs(double(x) - double(dynamic_value<sign>(code)));
    if (d < distance) {
      distance = d;
      best = code;
    }
  }
  return best;
}

/// An 8-bit state: codes with the extents of the numbers, and a scale per block.
template <class Real>
struct CodedState {
  HostTensor<Real> codes, scales;
};

template <class Real, MapSign sign>
HostTensor<Real> decode(const CodedState<Real>& state) {
  HostTensor<Real> t = state.codes;
  for (std::size_t i = 0; i < t.values().size(); ++i)
    t.values()[i] = Real(dynamic_value<sign>(int(t.values()[i]))) * state.scales.values()[i / adamw_block];
  return t;
}

/// The scale of a block: its largest magnitude, NaN if one is NaN.
template <class Real>
float block_scale(const std::vector<Real>& values, std::size_t begin, std::size_t end) {
  float largest = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const auto x = std::abs(static_cast<float>(values[i]));
    if (isnan(x)) return x;
    largest = std::max(largest, x);
  }
  return largest;
}

template <class Real, MapSign sign>
CodedState<Real> encode(const HostTensor<Real>& t) {
  const auto& values = t.values();
  const auto block = static_cast<std::size_t>(adamw_block);
  CodedState<Real> state{t, HostTensor<Real>({ceil_div<std::int64_t>(values.size(), adamw_block)})};
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const std::size_t end = std::min(values.size(), begin + block);
    const float largest = block_scale(values, begin, end);
    state.scales.values()[begin / block] = Real(largest);
    for (std::size_t i = begin; i < end; ++i)
      state.codes.values()[i] =
          Real(nearest_code<sign>(largest == 0 ? 0.0f : static_cast<float>(values[i]) / largest));
  }
  return state;
}

template <class Real, MapSign sign>
HostTensor<Real> read_state(const TensorRef& state, const TensorRef& scale) {
  if (state.dtype != DType::u8) return read_tensor<Real>(state);
  return decode<Real, sign>({read_tensor<Real>(state), read_tensor<Real>(scale)});
}

template <class Real, MapSign sign>
void write_state(const HostTensor<Real>& t, const TensorRef& state, const TensorRef& scale) {
  if (state.dtype != DType::u8) return write_tensor(t, state);
  const auto coded = encode<Real, sign>(t);
  auto* codes = static_cast<std::uint8_t*>(state.data);
  for (const Real code : coded.codes.values()) *codes++ = static_cast<std::uint8_t>(code);
  write_tensor(coded.scales, scale);
}

template <class Real>
AdamWState<Real> read_parameter(const AdamWParameter& p) {
  return {read_tensor<Real>(p.master.present() ? p.master : p.weight), read_tensor<Real>(p.gradient),
          read_state<Real, MapSign::with>(p.m, p.m_scale), read_state<Real, MapSign::without>(p.v, p.v_scale),
          p.weight_decay};
}

template <class Real>
void write_parameter(const AdamWState<Real>& s, const AdamWParameter& p) {
  if (p.master.present()) write_tensor(s.weight, p.master);
  // The weight is the rounding of the master weight as it is stored.
  write_tensor(p.master.present() ? read_tensor<Real>(p.master) : s.weight, p.weight);
  write_state<Real, MapSign::with>(s.m, p.m, p.m_scale);
  write_state<Real, MapSign::without>(s.v, p.v, p.v_scale);
}

}  // namespace kformer::Impl::reference
