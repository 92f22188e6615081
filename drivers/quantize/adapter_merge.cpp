// SPDX-License-Identifier: MIT
#include "quantize/adapter_merge.hpp"

#include "measure/spaces.hpp"

namespace kformer::drivers {

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
