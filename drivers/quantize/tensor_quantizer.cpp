// SPDX-License-Identifier: MIT
#include "quantize/tensor_quantizer.hpp"

#include "measure/spaces.hpp"

namespace kformer::drivers {

std::unique_ptr<TensorQuantizer> make_tensor_quantizer(const std::string& space) {
  return measure::on_space(
      space, []<class Exec>(std::type_identity<Exec>) { return make_tensor_quantizer_on<Exec>(); });
}

}  // namespace kformer::drivers
