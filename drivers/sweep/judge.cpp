// SPDX-License-Identifier: MIT
#include "sweep/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kformer/core/tolerance.hpp"

namespace kformer::drivers {

namespace {
constexpr std::size_t all_judged = std::size_t(1) << 20, judged_rows = 31;

/// The median of the tensors' relative errors in the naive computation.
long double usual_error(const measure::HostArrays& exact, const measure::HostArrays& naive) {
  std::vector<long double> errors;
  for (const auto& [name, array] : naive) {
    const auto found = exact.find(name);
    if (found == exact.end()) continue;
    const long double error =
        error_norms(array.values, found->second.values).rms / magnitude(found->second.values).rms;
    if (std::isfinite(error)) errors.push_back(error);
  }
  if (errors.empty()) return 0;
  const auto middle = errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2);
  std::ranges::nth_element(errors, middle);
  return *middle;
}

std::vector<double> widened_by(std::vector<double> naive, const std::vector<double>& exact,
                               const std::vector<double>& perturbed, double factor) {
  for (std::size_t i = 0; i < naive.size(); ++i) {
    const double wide = exact[i] + std::hypot(naive[i] - exact[i], factor * (perturbed[i] - exact[i]));
    if (std::isfinite(wide)) naive[i] = wide;
  }
  return naive;
}

}  // namespace

std::size_t judged_elements(std::size_t elements) {
  return elements > all_judged ? elements / judged_rows : elements;
}

measure::HostArray judged_part(measure::HostArray array) {
  if (array.values.size() <= all_judged) return array;
  const std::size_t cols = array.shape.back(), rows = array.values.size() / cols;
  measure::HostArray part;
  const auto add = [&](std::size_t row) {
    const auto first = array.values.begin() + static_cast<std::ptrdiff_t>(row * cols);
    part.values.insert(part.values.end(), first, first + static_cast<std::ptrdiff_t>(cols));
  };
  for (std::size_t row = 0; row + 1 < rows; row += judged_rows) add(row);
  add(rows - 1);
  part.shape = {part.values.size() / cols, cols};
  return part;
}

measure::HostArrays judged_part(measure::HostArrays arrays) {
  for (auto& [name, array] : arrays) array = judged_part(std::move(array));
  return arrays;
}

NaiveStandIn naive_stand_in(DType dtype) {
  if (dtype == DType::f64) return {DType::f32, 1.5L * 0x1p-29L};
  return {dtype, 1.0L};
}

void add_row(measure::HostArray& matrix, const std::vector<double>& row) {
  matrix.shape = {matrix.shape.empty() ? 1 : matrix.shape.front() + 1, row.size()};
  matrix.values.insert(matrix.values.end(), row.begin(), row.end());
}

void record_errors(const measure::HostArrays& results, const measure::HostArrays& exact,
                   Measurement& measurement) {
  measurement.max_abs_err = measurement.max_rel_err = measurement.mean_abs_err = 0;
  for (const auto& [name, array] : results) {
    const auto found = exact.find(name);
    if (found == exact.end()) continue;
    const auto& reference = found->second.values;
    const double largest = static_cast<double>(magnitude(reference).max);
    const double error = static_cast<double>(error_norms(array.values, reference).max);
    measurement.max_abs_err = std::max(measurement.max_abs_err, error);
    if (largest > 0) measurement.max_rel_err = std::max(measurement.max_rel_err, error / largest);
    long double sum = 0;
    for (std::size_t i = 0; i < reference.size(); ++i) sum += difference(array.values[i], reference[i]);
    if (!reference.empty())
      measurement.mean_abs_err =
          std::max(measurement.mean_abs_err, static_cast<double>(sum) / static_cast<double>(reference.size()));
  }
}

void NaiveResults::add_sample(const measure::HostArrays& exact, const measure::HostArrays& naive,
                              const measure::HostArrays& its_exact) {
  const double before = static_cast<double>(samples), weight = 1 / std::sqrt(before + 1);
  for (auto& [name, array] : arrays) {
    const auto &center = exact.at(name).values, &other = naive.at(name).values,
               &its = its_exact.at(name).values;
    for (std::size_t i = 0; i < array.values.size(); ++i) {
      const double error =
          weight * std::hypot(std::sqrt(before) * (array.values[i] - center[i]), other[i] - its[i]);
      if (std::isfinite(error)) array.values[i] = center[i] + error;
    }
  }
  ++samples;
}

measure::HostArrays widened(measure::HostArrays naive, const measure::HostArrays& exact,
                            const PerturbedResults& perturbed, DType dtype) {
  if (perturbed.arrays == nullptr) return naive;
  const auto factor = static_cast<double>(perturbed.scale / naive_stand_in(dtype).scale);
  for (const auto& [name, array] : *perturbed.arrays)
    if (const auto found = naive.find(name); found != naive.end() && exact.contains(name))
      found->second.values =
          widened_by(std::move(found->second.values), exact.at(name).values, array.values, factor);
  return naive;
}

Rejection judge(const JudgedResults& results, const measure::HostArrays& exact, const NaiveResults& naive,
                const PerturbedResults& perturbed) {
  const long double usual = usual_error(exact, naive.arrays);
  const long double scale = naive_stand_in(results.dtype).scale;
  // The mean of the squares of all samples has the perturbed run of the first one once.
  const PerturbedResults of_first{perturbed.arrays,
                                  perturbed.scale / std::sqrt(static_cast<long double>(naive.samples))};
  const measure::HostArrays samples = widened(naive.arrays, exact, of_first, results.dtype);
  for (const auto& [name, array] : results.arrays) {
    if (!exact.contains(name) || !naive.arrays.contains(name))
      return {name + ": the check has no such result", std::numeric_limits<long double>::infinity()};
    const auto& reference = exact.at(name).values;
    const std::vector<double>& sample = samples.at(name).values;
    const std::size_t size = array.values.size(), rows = results.independent_rows;
    const std::size_t row = std::max({std::size_t{1}, array.shape.empty() ? 1 : array.shape.back(),
                                      size / rows + (size % rows == 0 ? 0 : 1)});
    const ErrorLimits limits = sampled_limits(results.stored(name), compute_dtype(results.dtype), row, sample,
                                              reference, {scale, usual, naive.samples});
    const Verdict verdict = limits.judge(array.values, reference);
    if (verdict.ok()) continue;
    std::string text = fmt::format("{}: rms error {:.3e} (limit {:.3e})", name,
                                   static_cast<double>(verdict.rms), static_cast<double>(verdict.rms_limit));
    if (const std::size_t i = verdict.first_wrong; verdict.wrong > 0)
      text += fmt::format("; {} of {} elements out of tolerance, the first: {:.9g}, expected {:.9g} ± {:.3e}",
                          verdict.wrong, reference.size(), array.values[i], reference[i],
                          static_cast<double>(limits.of(i)));
    return {text, limits.independent_rows()};
  }
  return {};
}

std::string disagreement(const measure::HostArrays& one, const measure::HostArrays& other) {
  for (const auto& [name, array] : one) {
    if (!other.contains(name)) continue;
    const auto& reference = other.at(name).values;
    const long double limit = ulp(DType::f32, magnitude(reference).rms),
                      rms = error_norms(array.values, reference).rms;
    if (!(rms <= limit))
      return fmt::format("{} differs between two kernels in double: rms {:.3e} (limit {:.3e})", name,
                         static_cast<double>(rms), static_cast<double>(limit));
  }
  return {};
}

}  // namespace kformer::drivers
