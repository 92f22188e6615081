// SPDX-License-Identifier: MIT
#include "kformer/memory/planner.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "kformer/core/error.hpp"
#include "kformer/memory/format_bytes.hpp"

namespace kformer {

namespace {

// Layers are equal, so a plan is how many layers have which policy. The front needs no plan with both a nested run
// and layers of kind `layer`: one run over all of these, with a slot more for each, costs as many bytes and repeats
// no more forwards. So `layer` is a run with a slot per layer.
enum Policy : std::size_t { none, pointwise, layer, offload, policies };
constexpr std::array<Recompute, policies> names{Recompute::none, Recompute::pointwise, Recompute::layer,
                                                Recompute::offload};

struct Candidate {
  std::size_t bytes = 0;
  double seconds = 0;
  std::int32_t nested_layers = 0, nested_slots = 0;
  std::array<std::int32_t, policies> layers{};
};

// What one more layer of a policy costs.
struct Choice {
  Policy policy;
  std::size_t bytes;
  double seconds;
};

using Front = std::vector<Candidate>;

bool cheaper(const Candidate& a, const Candidate& b) {
  return std::tie(a.bytes, a.seconds) < std::tie(b.bytes, b.seconds);
}

// Adds the next candidate in order of bytes, unless one before it is as fast.
void add(Front& front, const Candidate& next) {
  if (front.empty() || next.seconds < front.back().seconds) front.push_back(next);
}

Front merged(const Front& a, const Front& b) {
  Front all;
  all.reserve(a.size() + b.size());
  for (auto i = a.begin(), j = b.begin(); i != a.end() || j != b.end();)
    add(all, j == b.end() || (i != a.end() && !cheaper(*j, *i)) ? *i++ : *j++);
  return all;
}

// The plans of `front` with one more layer, of any policy of `choices`.
Front extended(const Front& front, const std::vector<Choice>& choices) {
  Front result;
  for (const Choice& choice : choices) {
    Front more = front;
    for (Candidate& c : more) {
      c.bytes += choice.bytes;
      c.seconds += choice.seconds;
      ++c.layers[choice.policy];
    }
    result = merged(result, more);
  }
  return result;
}

// A run of `layers` recomputed layers with any number of slots. `repeated`: those whose own forward runs again.
Front run(std::int32_t layers, std::int32_t repeated, const RecomputeCosts& costs) {
  Front front;
  for (std::int32_t slots = 1; slots < layers; ++slots) {
    Candidate c;
    c.bytes = static_cast<std::size_t>(slots) * costs.input_bytes + costs.nested_bytes;
    c.seconds = static_cast<double>(repeated + revolve_forwards(repeated, slots)) * costs.forward_seconds;
    c.nested_layers = layers;
    c.nested_slots = slots;
    add(front, c);
  }
  Candidate all;
  all.bytes = static_cast<std::size_t>(layers) * costs.input_bytes;
  all.seconds = repeated * costs.forward_seconds;
  all.layers[layer] = layers;
  return merged({all}, front);
}

RecomputePlan plan(const Candidate& c) {
  RecomputePlan result{{c.nested_layers, c.nested_slots, {}}, c.bytes, c.seconds};
  for (std::size_t p = 0; p < policies; ++p)
    result.schedule.kinds.insert(result.schedule.kinds.end(), static_cast<std::size_t>(c.layers[p]), names[p]);
  return result;
}

}  // namespace

std::vector<RecomputePlan> recompute_front(std::int64_t layers, const RecomputeCosts& costs) {
  const std::vector<Choice> keep{
      {none, costs.none_bytes + costs.input_bytes, 0},
      {pointwise, costs.pointwise_bytes + costs.input_bytes, costs.pointwise_seconds}};
  std::vector<Choice> any = keep;
  any.push_back({offload, 0, costs.forward_seconds + costs.offload_seconds});
  // Fronts of the first n layers: none is recomputed; the last that is recomputed ends a run; an offloaded layer
  // follows. In `offloaded` it has followed, as the last layer of the model.
  Front kept(1), ended, followed(1), offloaded;
  for (std::int32_t n = 1; n <= layers; ++n) {
    kept = extended(kept, keep);
    ended = merged(extended(ended, keep), run(n, n - 1, costs));
    if (!costs.offload) continue;
    if (n == layers) offloaded = extended(followed, {{offload, costs.offload_bytes, costs.offload_seconds}});
    followed = merged(extended(followed, any), run(n, n, costs));
  }
  Front recomputed = merged(ended, offloaded);
  for (Candidate& c : recomputed) c.bytes += costs.working_bytes;
  std::vector<RecomputePlan> front;
  for (const Candidate& c : merged(kept, recomputed)) front.push_back(plan(c));
  return front;
}

const RecomputePlan& best_plan(const std::vector<RecomputePlan>& front, std::size_t budget) {
  const auto above =
      std::upper_bound(front.begin(), front.end(), budget,
                       [](std::size_t bytes, const RecomputePlan& p) { return bytes < p.bytes; });
  if (above != front.begin()) return *std::prev(above);
  const std::size_t least = front.front().bytes;
  throw OutOfMemory("kformer::best_plan: no schedule of recomputation fits into " + std::to_string(budget) +
                    " bytes (" + format_bytes(budget) + "); the least budget that would do is " +
                    std::to_string(least) + " bytes (" + format_bytes(least) + ")");
}

}  // namespace kformer
