// SPDX-License-Identifier: MIT
#include "support/references.hpp"

#include "support/compare.hpp"
#include "support/test_tensor.hpp"

namespace kformer::Impl {
template HostTensor<float> read_tensor(const TensorRef&);
template HostTensor<double> read_tensor(const TensorRef&);
template HostTensor<long double> read_tensor(const TensorRef&);
template HostTensor<Estimated<float>> read_tensor(const TensorRef&);
template HostTensor<Estimated<double>> read_tensor(const TensorRef&);
}  // namespace kformer::Impl

namespace kformer::Testing {
using kformer::Impl::Estimated;
template Comparison compare_as(DType, const HostTensor<double>&, const HostTensor<double>&,
                               const HostTensor<Estimated<float>>&);
template Comparison compare_as(DType, const HostTensor<long double>&, const HostTensor<long double>&,
                               const HostTensor<Estimated<double>>&);
}  // namespace kformer::Testing

namespace kformer::Impl::reference {
KFORMER_EVERY_TEST_REFERENCE();
}
