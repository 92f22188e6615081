// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

#include "sweep/measurement.hpp"

namespace kformer::drivers {

/// How the naive computation represents a storage type. In double it would be as good as the oracle, and
/// equal to it where both run the same kernels; so the errors of float stand in, smaller by the ratio of the
/// two roundings, and half as much again for the oracle's own.
struct NaiveStandIn {
  DType dtype;        ///< what the naive computation runs in
  long double scale;  ///< factor on its errors
};

/// The stand-in for a storage type.
NaiveStandIn naive_stand_in(DType dtype);

/// Writes the errors of `results` against `exact` into `measurement`: the largest, the largest relative to its
/// tensor's largest value, and the largest mean of a tensor. Tensors that `exact` lacks are passed over.
void record_errors(const HostArrays& results, const HostArrays& exact, Measurement& measurement);

/// Judges by the rule, over all tensors of the case at once, each in units of its own size: a single small
/// tensor, such as a bias, has too few elements for its largest error to be steady.
/// \param naive  the naive computation's results, in the type of `naive_stand_in(dtype)`
/// \param stored the storage type of a result, by name
/// \returns an empty string, or in what way the results are out of tolerance
std::string judge(const HostArrays& results, const HostArrays& exact, const HostArrays& naive, DType dtype,
                  const std::function<DType(const std::string&)>& stored);

}  // namespace kformer::drivers
