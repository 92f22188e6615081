// SPDX-License-Identifier: MIT
#include "kformer/train/loss_spikes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "train/require.hpp"

namespace kformer {

namespace {
constexpr Impl::Require require{"LossSpikes"};
}  // namespace

LossSpikes::LossSpikes(const LossSpikeOptions& options) : m_options(options) {
  require(options.loss_z >= 0 && options.norm_z >= 0, "loss_z and norm_z must not be negative, got ",
          options.loss_z, " and ", options.norm_z, "; 0 turns them off");
  require(options.window >= 2, "the window must have at least 2 steps, got ", options.window);
}

bool LossSpikes::is_spike(const std::vector<double>& window, double value, double limit) const {
  if (limit == 0 || std::ssize(window) < m_options.window) return false;
  // Summed anew each time, so that a resumed run has the same bits.
  const double count = static_cast<double>(window.size());
  const double mean = std::accumulate(window.begin(), window.end(), 0.0) / count;
  double squares = 0;
  for (const double x : window) squares += (x - mean) * (x - mean);
  const double deviation = std::sqrt(squares / count);
  return deviation > 0 && value - mean > limit * deviation;
}

bool LossSpikes::accept(double loss, double norm) {
  if (!m_options.enabled()) return true;
  if (!std::isfinite(loss) || !std::isfinite(norm)) return false;
  const bool spike = is_spike(m_losses, loss, m_options.loss_z) || is_spike(m_norms, norm, m_options.norm_z);
  if (std::ssize(m_losses) == m_options.window) {
    m_losses.erase(m_losses.begin());
    m_norms.erase(m_norms.begin());
  }
  m_losses.push_back(loss);
  m_norms.push_back(norm);
  return !spike;
}

void LossSpikes::restore(std::vector<double> losses, std::vector<double> norms) {
  require(losses.size() == norms.size(), "a window of ", losses.size(), " losses and ", norms.size(),
          " norms cannot be restored: expected as many of both");
  const auto newest = [&](const std::vector<double>& all) {
    const auto kept = std::min(std::ssize(all), static_cast<std::ptrdiff_t>(m_options.window));
    return std::vector(all.end() - kept, all.end());
  };
  m_losses = newest(losses);
  m_norms = newest(norms);
}

}  // namespace kformer
