// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

#include "sweep/measurement.hpp"

namespace kformer::drivers {

/// How many elements of a tensor are judged: up to 2^20 all of them, of more those of every 31st row. The
/// number is prime: the rows lie everywhere in the tiles of kernels, whose sizes are powers of two.
std::size_t judged_elements(std::size_t elements);

/// The judged rows of a tensor.
measure::HostArray judged_part(measure::HostArray array);
/// The same of all.
measure::HostArrays judged_part(measure::HostArrays arrays);

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
void record_errors(const measure::HostArrays& results, const measure::HostArrays& exact,
                   Measurement& measurement);

/// Judges each tensor by the tolerance rule (docs/tolerance.md), where the errors of the naive computation stand for the
/// expected ones.
/// \param naive  the naive computation's results, in the type of `naive_stand_in(dtype)`
/// \param stored the storage type of a result, by name
/// \returns an empty string, or the first tensor that is out of tolerance and in what way
std::string judge(const measure::HostArrays& results, const measure::HostArrays& exact,
                  const measure::HostArrays& naive, DType dtype,
                  const std::function<DType(const std::string&)>& stored);

/// Whether the same computation by two sets of kernels, both in double, agrees to the precision of float: the
/// rms of each difference is at most an ulp of the tensor's rms in float.
/// \returns an empty string, or which tensor does not agree
std::string disagreement(const measure::HostArrays& one, const measure::HostArrays& other);

}  // namespace kformer::drivers
