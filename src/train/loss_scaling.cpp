// SPDX-License-Identifier: MIT
#include "kformer/train/loss_scaling.hpp"

#include <algorithm>
#include <cmath>

#include "train/require.hpp"

namespace kformer {

namespace {
constexpr Impl::Require require{"DynamicLossScale"};
}  // namespace

DynamicLossScale::DynamicLossScale(const LossScaling& options) : m_options(options), m_scale(options.initial) {
  const LossScaling& o = options;
  require(o.least > 0 && std::isfinite(o.greatest) && o.least <= o.initial && o.initial <= o.greatest,
          "expected 0 < least <= initial <= greatest, all finite, got least ", o.least, ", initial ", o.initial,
          ", greatest ", o.greatest);
  require(o.growth_factor >= 1 && std::isfinite(o.growth_factor), "growth_factor must be at least 1, got ",
          o.growth_factor);
  require(o.backoff_factor > 0 && o.backoff_factor < 1, "backoff_factor must lie between 0 and 1, got ",
          o.backoff_factor);
  require(o.growth_interval >= 0, "growth_interval must not be negative, got ", o.growth_interval,
          "; 0 keeps the scale fixed");
}

void DynamicLossScale::restore(double scale, std::int64_t good_steps) {
  require(m_options.least <= scale && scale <= m_options.greatest, "a scale of ", scale,
          " cannot be restored: it must lie between least ", m_options.least, " and greatest ",
          m_options.greatest);
  require(good_steps >= 0, "good_steps must not be negative, got ", good_steps);
  m_scale = scale;
  m_good_steps = good_steps;
}

bool DynamicLossScale::update(bool finite) {
  if (m_options.growth_interval == 0) return finite;
  if (!finite) {
    m_scale = std::max(m_options.least, m_scale * m_options.backoff_factor);
    m_good_steps = 0;
  } else if (++m_good_steps >= m_options.growth_interval) {
    m_scale = std::min(m_options.greatest, m_scale * m_options.growth_factor);
    m_good_steps = 0;
  }
  return finite;
}

}  // namespace kformer
