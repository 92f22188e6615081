// SPDX-License-Identifier: MIT
#include "ops/common/cuda/tensor_map.hpp"

#include <string>

#include "kformer/core/error.hpp"
#include "ops/common/cuda/launch.hpp"

#if defined(__CUDACC__)
#include <cuda.h>
#include <cudaTypedefs.h>
#endif

namespace kformer::Impl::cuda {

#if defined(__CUDACC__)

namespace {

// Asked for at run time: the library does not link libcuda, which machines without a device lack.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto found = [] {
    constexpr const char* name = "cuTensorMapEncodeTiled";
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result), name);
#else  // it takes no version, and there is only one
    check(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result), name);
#endif
    if (result != cudaDriverEntryPointSuccess || !function)
      throw Error(std::string(name) + ": the CUDA driver does not have it");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  return found;
}

}  // namespace

TensorMap make_tensor_map(Half type, const TensorShape& shape) {
  // CUDA 12 aligns it to 64 bytes, CUDA 13 to 128.
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));
  const cuuint64_t extent[4] = {shape.extent[0], shape.extent[1], shape.extent[2], shape.extent[3]};
  const cuuint64_t stride[3] = {shape.stride_bytes[1], shape.stride_bytes[2], shape.stride_bytes[3]};
  const cuuint32_t box[4] = {shape.box[0], shape.box[1], shape.box[2], shape.box[3]};
  const cuuint32_t element_stride[4] = {1, 1, 1, 1};
  CUtensorMap encoded;
  const CUresult result = encoder()(
      &encoded, type == Half::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
      const_cast<void*>(shape.data), extent, stride, box, element_stride, CU_TENSOR_MAP_INTERLEAVE_NONE,
      shape.box[0] == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw Error("cuTensorMapEncodeTiled: CUDA says: error " + std::to_string(result));
  TensorMap map;
  std::memcpy(&map, &encoded, sizeof(map));
  return map;
}

#else

TensorMap make_tensor_map(Half, const TensorShape& shape) {
  // The requirements of cuTensorMapEncodeTiled.
  bool valid =
      reinterpret_cast<std::uintptr_t>(shape.data) % 16 == 0 && (shape.box[0] == 64 || shape.box[0] == 32);
  for (int i = 0; i < 4; ++i)
    valid = valid && shape.extent[i] > 0 && shape.extent[i] <= std::uint64_t(1) << 32 && shape.box[i] > 0 &&
            shape.box[i] <= 256;
  for (int i = 1; i < 4; ++i)
    valid = valid && shape.stride_bytes[i] % 16 == 0 && shape.stride_bytes[i] < std::uint64_t(1) << 40;
  if (!valid) throw Error("cuTensorMapEncodeTiled: it would refuse this array");
  return {shape};
}

#endif

}  // namespace kformer::Impl::cuda
