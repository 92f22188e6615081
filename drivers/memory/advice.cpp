// SPDX-License-Identifier: MIT
#include "memory/advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace kformer::drivers {

namespace {

// Those that fit before those that do not; of the first the fastest, of the others the smallest.
bool better(const PlannedCase* a, const PlannedCase* b) {
  if (a->fits() != b->fits()) return a->fits();
  const auto& [x, y] = std::tie(a->forecast, b->forecast);
  return a->fits()
             ? std::tie(x.recompute_share, x.bytes_in_space) < std::tie(y.recompute_share, y.bytes_in_space)
             : x.bytes_in_space < y.bytes_in_space;
}

std::string largest(const char* what, std::int64_t value) {
  return value < 0 ? "" : fmt::format("; largest {} {}", what, value);
}

std::string sentence(const PlannedCase& c) {
  const MemoryCase& p = c.point;
  const std::string policy = p.recompute == Recompute::automatic ? fmt::format("auto ({})", c.forecast.schedule)
                                                                 : std::string(name_of(p.recompute));
  std::string text =
      fmt::format("training, {}, {}{}, batch {}, context {}: ", p.execution_space, name_of(p.dtype),
                  p.weights == WeightStorage::same ? "" : fmt::format(", weights {}", name_of(p.weights)),
                  p.batch, p.context);
  text += c.fits() ? fmt::format("take {}: {}", policy, format_bytes(c.forecast.bytes_in_space))
                   : fmt::format("nothing fits; the least is {}: {}", policy,
                                 format_bytes(c.forecast.bytes_in_space));
  if (c.available) text += fmt::format(" of {}", format_bytes(*c.available));
  const double percent = 100 * c.forecast.recompute_share;
  const std::string digits = percent < 99.5 ? fmt::format("{:.2g}", percent) : fmt::format("{:.0f}", percent);
  text += percent > 0 ? fmt::format(", about {} % more time than none", digits) : ", no more time than none";
  return text + largest("batch", c.largest_batch) + largest("context", c.largest_context) + "\n";
}

}  // namespace

std::string advice(const std::vector<PlannedCase>& cases) {
  std::vector<MemoryCase> order;
  std::map<MemoryCase, const PlannedCase*> best;
  for (const PlannedCase& c : cases) {
    if (c.point.purpose != PlanPurpose::train || !c.unsupported.empty()) continue;
    MemoryCase group = c.point;
    group.recompute = Recompute::none;
    const auto [entry, is_new] = best.emplace(group, &c);
    if (is_new) order.push_back(group);
    if (better(&c, entry->second)) entry->second = &c;
  }
  std::string text;
  for (const MemoryCase& group : order) text += sentence(*best.at(group));
  return text;
}

std::string context_note(const std::vector<PlannedCase>& cases, std::int64_t longest) {
  std::int64_t context = 0;
  for (const PlannedCase& c : cases) context = std::max(context, c.point.context);
  if (longest == 0 || context <= longest) return "";
  return fmt::format(
      "note: sequences have up to {} tokens, more than max_position_embeddings = {} of the model, which learnt "
      "nothing of the places beyond\n",
      context, longest);
}

std::string not_counted(bool training, std::size_t scratch) {
  return fmt::format(
      "not counted: {}the program's code, Kokkos, buffers of underlying libraries{}\n",
      scratch > 0 ? fmt::format("{} of scratch for kernels on as many threads, ", format_bytes(scratch)) : "",
      training ? ", data on the host" : "");
}

}  // namespace kformer::drivers
