// SPDX-License-Identifier: MIT
#include "model/layer_reference.hpp"

namespace kformer::Testing {
KFORMER_LAYER_REFERENCES();
}
