// SPDX-License-Identifier: MIT
#include "ops/rope/cuda/rotate.hpp"

namespace kformer::Impl::cuda {

void rope_rotate(const char* label, Stream stream, DType type, bool half_split, const RopeArguments& a,
                 std::int64_t tokens) {
  with_float_number(type, [&]<class T>() {
    const std::int64_t units = a.half / per_chunk<T>, groups = rope_groups(a.q.heads + a.k.heads),
                       count = tokens * groups * units;
    const auto launch_kernel = [&](auto kernel) {
      kernel.a = a;
      kernel.count = static_cast<std::uint32_t>(count);
      kernel.units = static_cast<std::uint32_t>(units);
      kernel.groups = static_cast<std::uint32_t>(groups);
      launch(label, stream, (count + kernel.threads - 1) / kernel.threads, kernel);
    };
    if (half_split)
      launch_kernel(RopeKernel<T, true>{});
    else
      launch_kernel(RopeKernel<T, false>{});
  });
}

}  // namespace kformer::Impl::cuda
