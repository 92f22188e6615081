// SPDX-License-Identifier: MIT
#include "kformer/ops/embedding.hpp"

namespace kformer::Impl {

Operands EmbeddingForward::operands() const {
  return Operands(function, {{"ids", ids}, {"weight", weight}, {"y", y}});
}

void EmbeddingForward::check() const {
  operands()
      .require_floating("weight")
      .require_dtype("ids", DType::i32)
      .require_dtype("y", weight.dtype)
      .require_extents(y.has_extents({ids.extent[0], weight.extent[1]}),
                       "y to have one row per id and the columns of weight")
      .require_unit_stride()
      .require_disjoint("y");
}

Operands EmbeddingBackward::operands() const {
  return Operands(function, {{"ids", ids}, {"dy", dy}, {"dweight", dweight}});
}

void EmbeddingBackward::check() const {
  operands()
      .require_floating("dy")
      .require_dtype("ids", DType::i32)
      .require_dtype("dweight", compute_dtype(dy.dtype))
      .require_extents(dy.has_extents({ids.extent[0], dweight.extent[1]}),
                       "dy to have one row per id and the columns of dweight")
      .require_unit_stride()
      .require_disjoint("dweight");
}

}  // namespace kformer::Impl
