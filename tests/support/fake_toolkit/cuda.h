// SPDX-License-Identifier: MIT
#pragma once

/// \file
/// What src/ops/common/cuda/tensor_map.cpp takes from a CUDA toolkit, as the version CUDART_VERSION declares it.

using cuuint32_t = unsigned int;
using cuuint64_t = unsigned long long;

struct alignas(CUDART_VERSION >= 13000 ? 128 : 64) CUtensorMap {
  cuuint64_t opaque[16];
};

enum CUresult { CUDA_SUCCESS };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };
