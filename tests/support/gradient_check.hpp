// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace kformer::Testing {

/// Holds an analytic directional derivative against finite differences: `loss(t)` is the scalar loss with the
/// inputs moved by `t` along a direction, in double.
///
/// Central differences D(h) have error O(h²); Richardson's R = (4·D(h/2) − D(h))/3 has O(h⁴). The limit is what
/// the numbers themselves give: the truncation error of D(h/2), seen as |R − D(h/2)|, plus the rounding of the
/// loss over h.
template <class Loss>
void check_gradient(const std::string& what, Loss loss, double analytic, double h = 1e-3) {
  const double up = loss(h), down = loss(-h), up2 = loss(h / 2), down2 = loss(-h / 2);
  const double d1 = (up - down) / (2 * h), d2 = (up2 - down2) / h;
  const double richardson = (4 * d2 - d1) / 3;
  const double magnitude =
      std::max({std::abs(up), std::abs(down), std::abs(up2), std::abs(down2), std::abs(analytic)});
  const double rounding = 64 * std::numeric_limits<double>::epsilon() * magnitude / h;
  const double limit = std::abs(richardson - d2) + rounding;
  const double error = std::abs(analytic - richardson);
  BOOST_TEST(error <= limit,
             what << ": analytic " << analytic << ", finite differences " << richardson << ", limit " << limit);
  // A limit as large as the derivative would let anything pass.
  BOOST_TEST(limit <= 1e-3 * std::max(std::abs(analytic), 1e-6 * magnitude / h),
             what << ": the check is too coarse: limit " << limit << " at " << analytic);
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// The same for one input tensor of doubles along a random direction: `loss()` computes the scalar from what
/// the tensor holds, `gradient` is the analytic one. The tensor is as before afterwards.
template <class Tensor, class Loss>
void check_gradient_of(const char* what, Tensor& input, const Tensor& gradient, std::mt19937& generator,
                       Loss loss) {
  const std::vector<double> start = input.template read<double>().values();
  std::vector<double> direction(start.size());
  std::normal_distribution<double> normal;
  for (double& d : direction) d = normal(generator);
  const auto moved = [&](double h) {
    input.fill([&](std::size_t i) { return start[i] + h * direction[i]; });
    return loss();
  };
  check_gradient(what, moved, dot(gradient.template read<double>().values(), direction));
  input.fill([&](std::size_t i) { return start[i]; });
}

}  // namespace kformer::Testing
