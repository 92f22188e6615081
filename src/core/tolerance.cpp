// SPDX-License-Identifier: MIT
#include "kformer/core/tolerance.hpp"

namespace kformer {

void ErrorLimits::add(long double reference, long double variance, long double half_ulp) {
  const bool known = std::isfinite(variance) && std::isfinite(half_ulp);
  const long double rounding = std::isfinite(reference) ? ulp(m_stored, std::abs(reference)) / 2 : 0;
  m_half_ulp.push_back(known ? std::max(rounding, half_ulp) : rounding);
  m_deviation.push_back(known ? std::sqrt(variance) : 0);
  m_before += m_deviation.back() * m_deviation.back();
  m_of_row += m_deviation.back() * m_deviation.back() + m_half_ulp.back() * m_half_ulp.back() / 3;
  if (m_half_ulp.size() % m_row != 0) return;
  m_total += m_of_row;
  m_squares += m_of_row * m_of_row;
  m_of_row = 0;
}

ErrorLimits::Margin ErrorLimits::margin() const {
  const long double width =
      m_samples > 0 ? 10 + 40 * uncertainty() / std::sqrt(static_cast<long double>(m_samples)) : 10;
  return {width, std::max(m_least, std::sqrt(mean(m_before)) / 8)};
}

long double ErrorLimits::of(std::size_t i, const Margin& margin) const {
  return m_half_ulp[i] + margin.width * std::max(m_deviation[i], margin.least);
}

long double ErrorLimits::of(std::size_t i) const { return of(i, margin()); }

long double ErrorLimits::rms() const { return (2 + 8 * uncertainty()) * std::sqrt(mean(m_total + m_of_row)); }

long double ErrorLimits::uncertainty() const {
  const long double total = m_total + m_of_row, squares = m_squares + m_of_row * m_of_row;
  return total == 0 ? 0 : std::sqrt(squares) / total;
}

long double ErrorLimits::mean(long double sum) const {
  return m_half_ulp.empty() ? 0 : sum / static_cast<long double>(m_half_ulp.size());
}

long double ErrorLimits::independent_rows() const {
  const long double u = uncertainty();
  return u == 0 ? 1 : 1 / (u * u);
}

template <class Real>
Verdict ErrorLimits::judge_all(std::span<const Real> out, std::span<const Real> reference) const {
  const Margin of_all = margin();
  const auto error_of = [&](std::size_t i) {
    return stored_difference(m_stored, out[i], reference[i], of(i, of_all));
  };
  Verdict v{.rms = norms_of(out.size(), error_of).rms, .rms_limit = rms()};
  if (v.rms > 0) v.share = v.rms / v.rms_limit;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const long double error = error_of(i), limit = of(i, of_all);
    if (error > 0) v.share = std::max(v.share, error / limit);
    if (!(error <= limit) && v.wrong++ == 0) v.first_wrong = i;
  }
  return v;
}

Verdict ErrorLimits::judge(std::span<const double> out, std::span<const double> reference) const {
  return judge_all(out, reference);
}

Verdict ErrorLimits::judge(std::span<const long double> out, std::span<const long double> reference) const {
  return judge_all(out, reference);
}

}  // namespace kformer
