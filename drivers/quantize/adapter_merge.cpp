// SPDX-License-Identifier: MIT
#include "quantize/adapter_merge.hpp"

#include <algorithm>
#include <cmath>

#include "measure/spaces.hpp"

namespace kformer::drivers {

namespace {

/// Logarithms of the probabilities of all words.
std::vector<double> log_softmax(std::vector<double> logits) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double x : logits) sum += std::exp(x - most);
  for (double& x : logits) x -= most + std::log(sum);
  return logits;
}

}  // namespace

LogitDifference difference(const Logits& exact, const Logits& other) {
  LogitDifference all;
  std::size_t words = 0;
  for (std::size_t t = 0; t < exact.size(); ++t) {
    const auto p = log_softmax(exact[t]), q = log_softmax(other.at(t));
    double divergence = 0;
    for (std::size_t w = 0; w < p.size(); ++w) {
      const double error = std::abs(other[t][w] - exact[t][w]);
      all.max_err = std::max(all.max_err, error);
      all.rms_err += error * error;
      divergence += std::exp(p[w]) * (p[w] - q[w]);
    }
    words += p.size();
    all.divergence += divergence;
    all.max_divergence = std::max(all.max_divergence, divergence);
    all.same_first += std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin();
  }
  all.tokens = std::ssize(exact);
  if (exact.empty()) return all;
  all.rms_err = std::sqrt(all.rms_err / static_cast<double>(words));
  all.divergence /= static_cast<double>(exact.size());
  all.same_first /= static_cast<double>(exact.size());
  return all;
}

bool is_adapted(const AdapterCheckpoint& adapter, const std::string& name) {
  for (std::size_t i = 0; i < adapter.lora().targets.size(); ++i)
    if (const auto p = static_cast<Projection>(i);
        adapter.lora()[p].rank > 0 && name.ends_with("." + projection_weight_name(p)))
      return true;
  return false;
}

std::unique_ptr<AdapterMerge> make_adapter_merge(const std::string& space, const Checkpoint& source,
                                                 const AdapterCheckpoint& adapter) {
  return measure::on_space(space, [&]<class Exec>(std::type_identity<Exec>) {
    return make_adapter_merge_on<Exec>(source, adapter);
  });
}

}  // namespace kformer::drivers
