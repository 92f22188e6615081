// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention_cases.hpp"

namespace kformer::Testing {

/// Of a kernel of forward, also with many features (`large`). Two NaN compare equal: so NaN must be exactly where it belongs.
template <class T, class Kernel>
void check_nan_of_forward(const Kernel& kernel, const AttentionCase& large) {
  using Case = AttentionCase;
  const Case c{2, 75, 113, 2, 1, 8, 8}, longer{2, 113, 75, 2, 1, 8, 8}, wide{1, 70, 130, 2, 1, 64, 80};
  const Case packed = Case{1, 0, 0, 4, 2, 8, 8}.packed({40, 30, 0, 5}, {70, 20, 3, 0}).causal();
  for (const Case& of : {
           c.window(10).poison(Poison::hidden_keys),
           c.causal().window(10).poison(Poison::hidden_keys),
           wide.causal().window(20).poison(Poison::hidden_keys),
           packed.poison(Poison::hidden_keys),
           longer.causal().poison(Poison::blind_queries),
           packed.poison(Poison::blind_queries),
       })
    check_forward<T>(kernel, of);
  for (const Poison what : {Poison::last_value, Poison::last_key})
    for (const Case& of : {c.causal(), c.causal().window(30).softcap(3), wide.causal(), large.causal(), packed})
      check_forward<T>(kernel, of.poison(what));
}

}  // namespace kformer::Testing
