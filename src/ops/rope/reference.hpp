// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <limits>

#include "kformer/ops/rope.hpp"
#include "ops/common/host_tensor.hpp"

/// \file
/// Rotary embedding in textbook order: the oracle. See host_tensor.hpp for `Real` and `Store`.

namespace kformer::Impl::reference {

/// Angle per position of pair `i`: theta^(−2i / head_dim), scaled by wavelength as Llama 3 does.
template <class Real>
Real rope_frequency(std::int64_t i, std::int64_t half, const RopeOptions& options) {
  const RopeScaling& s = options.scaling;
  const Real frequency = pow(Real(options.theta), -Real(i) / Real(half));
  if (s.rope_type == RopeType::none) return frequency;
  const Real two_pi = 8 * atan(Real(1));
  const Real wavelength = two_pi / frequency, original = Real(s.original_max_position_embeddings);
  if (wavelength < original / Real(s.high_freq_factor)) return frequency;
  if (wavelength > original / Real(s.low_freq_factor)) return frequency / Real(s.factor);
  const Real smooth =
      (original / wavelength - Real(s.low_freq_factor)) / (Real(s.high_freq_factor) - Real(s.low_freq_factor));
  return (1 - smooth) * frequency / Real(s.factor) + smooth * frequency;
}

template <class Real>
struct RopeTablesResult {
  HostTensor<Real> cos, sin;
};

template <class Real, class Store>
RopeTablesResult<Real> rope_tables(std::int64_t positions, std::int64_t half, const RopeOptions& options) {
  RopeTablesResult<Real> r{HostTensor<Real>({positions, half}), HostTensor<Real>({positions, half})};
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const Real angle = Real(p) * rope_frequency<Real>(i, half, options);
      r.cos(p, i) = stored<Store>(cos(angle));
      r.sin(p, i) = stored<Store>(sin(angle));
    }
  return r;
}

/// x rotated by `direction` (+1 forward, −1 backward) times the angle of its position; `positions` may be
/// absent.
template <class Real, class Store>
HostTensor<Real> rope_rotate(const HostTensor<Real>& x, const HostTensor<Real>& cos,
                             const HostTensor<Real>& sin, const HostTensor<Real>& positions,
                             std::int64_t first_position, RopeLayout layout, int direction) {
  const auto heads = x.extent(2), half = x.extent(3) / 2;
  HostTensor<Real> y({x.extent(0), x.extent(1), heads, 2 * half});
  for (std::int64_t b = 0; b < x.extent(0); ++b)
    for (std::int64_t s = 0; s < x.extent(1); ++s) {
      const auto position = positions.present()
                                ? static_cast<std::int64_t>(positions(positions.extent(0) == 1 ? 0 : b, s))
                                : first_position + s;
      const bool inside = position >= 0 && position < cos.extent(0);
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < half; ++i) {
          const bool split = layout == RopeLayout::half_split;
          const std::int64_t first = split ? i : 2 * i, second = split ? i + half : 2 * i + 1;
          const Real nan = std::numeric_limits<Real>::quiet_NaN();
          const Real c = inside ? cos(position, i) : nan, d = inside ? Real(direction) * sin(position, i) : nan;
          const Real u = x(b, s, h, first), v = x(b, s, h, second);
          y(b, s, h, first) = stored<Store>(stored<Store>(u * c) - stored<Store>(v * d));
          y(b, s, h, second) = stored<Store>(stored<Store>(v * c) + stored<Store>(u * d));
        }
    }
  return y;
}

}  // namespace kformer::Impl::reference
