// SPDX-License-Identifier: MIT
#include "merge/logit_difference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::string report_text(const std::string& name, const LogitDifference& d) {
  return fmt::format(
      "{} against weights + adapter, {} tokens: logits differ by at most {:.3g}, rms {:.3g}; KL {:.3g} nats, "
      "at most {:.3g}; same most likely word {:.1f} %\n",
      name, d.tokens, d.max_err, d.rms_err, d.divergence, d.max_divergence, 100 * d.same_first);
}

void write_difference(ResultFile& file, const std::string& group, const LogitDifference& d) {
  file.group(group)
      .attribute("tokens", d.tokens, "after which logits were compared")
      .attribute("max_logit_err", d.max_err, "largest difference of a logit from weights and adapter")
      .attribute("rms_logit_err", d.rms_err, "root of the mean square of the differences")
      .attribute("kl_divergence", d.divergence, "of the next word, the mean over tokens, in nats")
      .attribute("max_kl_divergence", d.max_divergence, "the largest, in nats")
      .attribute("same_most_likely_word", d.same_first, "share of tokens after which both have the same");
}

}  // namespace kformer::drivers
