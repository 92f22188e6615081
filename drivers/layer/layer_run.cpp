// SPDX-License-Identifier: MIT
#include "layer/layer_run.hpp"

#include <algorithm>

#include "layer/spaces.hpp"

namespace kformer::drivers {

namespace {

struct Space {
  std::string name;
  bool is_default;
  std::unique_ptr<LayerRun> (*make)(DType, const LayerTask&, Ledger&);
  MachineLimits (*measure)();
};

template <class Exec>
Space entry(const char* name) {
  return {name, std::is_same_v<Exec, Kokkos::DefaultExecutionSpace>, make_layer_run_on<Exec>,
          measure_machine_on<Exec>};
}

const std::vector<Space>& spaces() {
  static const std::vector<Space> all = [] {
    std::vector<Space> list{KFORMER_SPACE_ENTRIES};
    std::stable_partition(list.begin(), list.end(), [](const Space& s) { return s.is_default; });
    return list;
  }();
  return all;
}

const Space& find(const std::string& name) {
  const auto it =
      std::find_if(spaces().begin(), spaces().end(), [&](const Space& s) { return s.name == name; });
  if (it == spaces().end())
    throw NotSupported("kformer-layer: execution space '" + name + "' is not part of this build");
  return *it;
}

}  // namespace

std::vector<std::string> built_spaces() {
  std::vector<std::string> names;
  for (const Space& space : spaces()) names.push_back(space.name);
  return names;
}

std::unique_ptr<LayerRun> make_layer_run(const std::string& space, DType dtype, const LayerTask& task,
                                         const std::shared_ptr<Ledger>& ledger) {
  return find(space).make(dtype, task, *ledger);
}

MachineLimits measure_machine(const std::string& space) { return find(space).measure(); }

}  // namespace kformer::drivers
