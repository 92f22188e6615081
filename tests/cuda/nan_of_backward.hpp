// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention_cases.hpp"

namespace kformer::Testing {

/// Of a kernel of backward, also with many features (`wide`). The oracle computes nothing from hidden keys, and two NaN compare
/// equal: so NaN must be exactly where it belongs.
template <class T, class Kernel>
void check_nan_of_backward(const Kernel& kernel, const AttentionCase& wide) {
  using Case = AttentionCase;
  const Case c{1, 75, 113, 2, 1, 8, 8}, longer{1, 113, 75, 2, 1, 8, 8};
  const Case packed = Case{1, 0, 0, 2, 1, 8, 8}.packed({40, 30, 0, 5}, {70, 20, 3, 0}).causal();
  for (const Case& of : {
           c.window(10).poison(Poison::hidden_keys),
           c.causal().window(10).poison(Poison::hidden_keys),
           packed.poison(Poison::hidden_keys),
           c.window(10).softcap(3).poison(Poison::hidden_keys),
           longer.causal().poison(Poison::blind_queries),
           packed.poison(Poison::blind_queries),
           longer.causal().softcap(3).poison(Poison::blind_queries),
           c.causal().poison(Poison::last_value),
           packed.poison(Poison::last_value),
           c.causal().poison(Poison::last_key),
           packed.poison(Poison::last_key),
           c.causal().softcap(3).poison(Poison::last_key),
           c.causal().poison(Poison::first_gradient),
           packed.poison(Poison::first_gradient),
           wide.causal().poison(Poison::last_key),
           wide.causal().poison(Poison::first_gradient),
       })
    check_backward<T>(kernel, of);
}

}  // namespace kformer::Testing
