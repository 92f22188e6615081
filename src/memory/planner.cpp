// SPDX-License-Identifier: MIT
#include "kformer/memory/planner.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "kformer/core/enum_names.hpp"
#include "kformer/core/error.hpp"
#include "kformer/memory/format_bytes.hpp"

namespace kformer {

namespace {

// Layers are equal, so a plan is how many layers have which policy. The front needs no plan with both a nested run
// and layers of kind `layer`: one run over all of these, with a slot more for each, costs as many bytes and repeats
// no more forwards. So `layer` is a run with a slot per layer.
// In the order of a plan: gradients lie over what the layer behind keeps, so that the first one has no use for it.
enum Policy : std::size_t { layer, offload, none, pointwise, policies };
constexpr std::array<Recompute, policies> names{Recompute::layer, Recompute::offload, Recompute::none,
                                                Recompute::pointwise};

struct Candidate {
  std::size_t bytes = 0;
  double seconds = 0;
  std::int32_t nested_layers = 0, nested_slots = 0;
  std::array<std::int32_t, policies> layers{};
  std::int64_t forwards = 0;  // of single layers, that run again
};

// What one more layer of a policy costs.
struct Choice {
  Policy policy;
  std::size_t bytes;
  std::int64_t forwards;
};

using Front = std::vector<Candidate>;

// The same counts give the same bits, for a plan and for a schedule from elsewhere.
double seconds_of(const std::array<std::int32_t, policies>& layers, std::int64_t forwards,
                  const RecomputeCosts& costs) {
  return layers[pointwise] * costs.pointwise_seconds + static_cast<double>(forwards) * costs.forward_seconds +
         layers[offload] * costs.offload_seconds;
}

// Forwards of a nested run. `repeated`: its layers whose own forward runs again.
std::int64_t nested_forwards(std::int64_t repeated, std::int64_t slots) {
  return repeated + revolve_forwards(repeated, slots);
}

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
Front extended(const Front& front, const std::vector<Choice>& choices, const RecomputeCosts& costs) {
  Front result;
  for (const Choice& choice : choices) {
    Front more = front;
    for (Candidate& c : more) {
      c.bytes += choice.bytes;
      c.forwards += choice.forwards;
      ++c.layers[choice.policy];
      c.seconds = seconds_of(c.layers, c.forwards, costs);
    }
    result = merged(result, more);
  }
  return result;
}

// A run of `layers` recomputed layers with any number of slots; `repeated` as above.
Front run(std::int32_t layers, std::int32_t repeated, const RecomputeCosts& costs) {
  Front front;
  for (std::int32_t slots = 1; costs.nested && slots < layers; ++slots) {
    Candidate c;
    c.bytes = static_cast<std::size_t>(slots) * costs.input_bytes + costs.nested_bytes;
    c.forwards = nested_forwards(repeated, slots);
    c.seconds = seconds_of(c.layers, c.forwards, costs);
    c.nested_layers = layers;
    c.nested_slots = slots;
    add(front, c);
  }
  Candidate all;
  all.bytes = static_cast<std::size_t>(layers) * costs.input_bytes;
  all.layers[layer] = layers;
  all.forwards = repeated;
  all.seconds = seconds_of(all.layers, all.forwards, costs);
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
  const std::vector<Choice> keep{{none, costs.none_bytes + costs.input_bytes, 0},
                                 {pointwise, costs.pointwise_bytes + costs.input_bytes, 0}};
  std::vector<Choice> any = keep;
  any.push_back({offload, 0, 1});
  // Fronts of the first n layers: none is recomputed; the last that is recomputed ends a run; an offloaded layer
  // follows. In `offloaded` it has followed, as the last layer of the model.
  Front kept(1), ended, followed(1), offloaded;
  for (std::int32_t n = 1; n <= layers; ++n) {
    kept = extended(kept, keep, costs);
    if (!costs.rerun) continue;
    ended = merged(extended(ended, keep, costs), run(n, n - 1, costs));
    if (!costs.offload) continue;
    if (n == layers) offloaded = extended(followed, {{offload, costs.offload_bytes, 0}}, costs);
    followed = merged(extended(followed, any, costs), run(n, n, costs));
  }
  Front recomputed = merged(ended, offloaded);
  for (Candidate& c : recomputed) c.bytes += costs.working_bytes;
  std::vector<RecomputePlan> front;
  for (const Candidate& c : merged(kept, recomputed)) front.push_back(plan(c));
  return front;
}

double recompute_seconds(const RecomputeSchedule& schedule, const RecomputeCosts& costs) {
  std::array<std::int32_t, policies> layers{};
  for (const Recompute kind : schedule.kinds) {
    const auto policy = std::ranges::find(names, kind);
    if (policy == names.end())
      throw NotSupported("kformer::recompute_seconds: '" + std::string(name_of(kind)) +
                         "' is not a per-layer policy; expected none, pointwise, layer or offload in kinds");
    ++layers[static_cast<std::size_t>(policy - names.begin())];
  }
  // The own forward of the last layer that is recomputed is free.
  const std::int64_t single = layers[layer] + layers[offload];
  std::int64_t forwards = single == 0 ? 0 : single - 1;
  if (schedule.nested_layers > 0)
    forwards += nested_forwards(schedule.nested_layers - (single == 0 ? 1 : 0), schedule.nested_slots);
  return seconds_of(layers, forwards, costs);
}

const RecomputePlan& best_plan(const std::vector<RecomputePlan>& front, std::size_t budget) {
  const auto above =
      std::upper_bound(front.begin(), front.end(), budget,
                       [](std::size_t bytes, const RecomputePlan& p) { return bytes < p.bytes; });
  if (above != front.begin()) return *std::prev(above);
  const std::size_t least = front.front().bytes;
  throw OutOfMemory("kformer::best_plan: no schedule of recomputation fits into " + std::to_string(budget) +
                    " bytes (" + format_bytes(budget) + "); the smallest sufficient budget is " +
                    std::to_string(least) + " bytes (" + format_bytes(least) + ")");
}

}  // namespace kformer
