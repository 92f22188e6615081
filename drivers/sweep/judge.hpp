// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "sweep/measurement.hpp"

namespace kformer::drivers {

/// How many elements of a tensor are judged: all, or if there are more than 2^20, those of every 31st row and of the last.
/// 31 is prime, and tile sizes of kernels are powers of two: so the rows cover every place in a tile.
std::size_t judged_elements(std::size_t elements);

/// The judged rows of a tensor.
measure::HostArray judged_part(measure::HostArray array);
/// The same of all.
measure::HostArrays judged_part(measure::HostArrays arrays);

/// How the naive computation represents a storage type. In double it would be as accurate as the oracle, and
/// equal to it where both run the same kernels. It therefore runs in float, and its errors are scaled by the
/// ratio of the two roundings and, because the oracle has errors too, by 1.5.
struct NaiveStandIn {
  DType dtype;        ///< what the naive computation runs in
  long double scale;  ///< factor on its errors
};

/// The stand-in for a storage type.
NaiveStandIn naive_stand_in(DType dtype);

/// Adds a row to a matrix. The rule takes the elements of a row for related, and rows for independent.
void add_row(measure::HostArray& matrix, const std::vector<double>& row);

/// Writes the errors of `results` against `exact` into `measurement`: the largest, the largest relative to its
/// tensor's largest value, and the largest mean of a tensor. Tensors that `exact` lacks are passed over.
void record_errors(const measure::HostArrays& results, const measure::HostArrays& exact,
                   Measurement& measurement);

/// Every row of a tensor has errors of its own.
inline constexpr std::size_t any_number_of_rows = std::numeric_limits<std::size_t>::max();

/// What a case computed, and what the tolerance rule must know of it.
struct JudgedResults {
  const measure::HostArrays& arrays;
  DType dtype;                                      ///< of the case
  std::function<DType(const std::string&)> stored;  ///< the storage type of an array, by name
  /// At most so many rows of an array have errors of their own: those of a weight gradient share the errors of the
  /// tokens that it sums over.
  std::size_t independent_rows = any_number_of_rows;
};

/// The same computation in double from perturbed operands. Its errors show what rounding may do where the naive
/// computation happens to be exact.
struct PerturbedResults {
  const measure::HostArrays* arrays = nullptr;  ///< null: there is none
  long double scale = 1;  ///< rounding in the arithmetic of the case, relative to the perturbation
};

/// The naive results, whose errors become √(error² + (error of the perturbed run, in the roundings of the case)²). What
/// only one has, or is not finite, stays.
/// \param dtype of the case
measure::HostArrays widened(measure::HostArrays naive, const measure::HostArrays& exact,
                            const PerturbedResults& perturbed, DType dtype);

/// What the naive computation makes of a case, in the type of `naive_stand_in`.
struct NaiveResults {
  measure::HostArrays arrays;
  std::size_t samples = 1;  ///< of errors, whose rms the arrays are off by

  /// Adds the errors of the same computation from other operands, `naive` − `its_exact`, as another sample.
  /// \param exact the reference of the case
  void add_sample(const measure::HostArrays& exact, const measure::HostArrays& naive,
                  const measure::HostArrays& its_exact);
};

/// The first tensor that is out of tolerance.
struct Rejection {
  std::string text;      ///< which tensor, and in what way; empty: there is none
  long double rows = 0;  ///< that have errors of their own in one sample; infinite if no sample can help
};

/// Judges each tensor by the tolerance rule (docs/tolerance.md), with the errors of the naive computation in
/// place of the expected ones. A tensor that `exact` or `naive` lacks is out of tolerance.
/// \param perturbed widens the errors of arrays that it has, as those of the first sample
Rejection judge(const JudgedResults& results, const measure::HostArrays& exact, const NaiveResults& naive,
                const PerturbedResults& perturbed = {});

/// Whether the same computation by two sets of kernels, both in double, agrees to the precision of float: the
/// rms of each difference is at most an ulp of the tensor's rms in float.
/// \returns an empty string, or which tensor does not agree
std::string disagreement(const measure::HostArrays& one, const measure::HostArrays& other);

}  // namespace kformer::drivers
