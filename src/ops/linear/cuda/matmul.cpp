// SPDX-License-Identifier: MIT
#include "ops/linear/cuda/matmul.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "kformer/core/error.hpp"

namespace kformer::Impl::cuda {

namespace {

void require(cublasStatus_t status, const char* label) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text = std::string(label) + ": cuBLASLt says: " + cublasLtGetStatusString(status);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) throw NotSupported(text);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemory(text);
  throw Error(text);
}

int current_device(const char* label) {
  int device = 0;
  check(cudaGetDevice(&device), label);
  return device;
}

// One for each device, which any thread may use. Never destroyed: the driver may be gone before statics are.
cublasLtHandle_t handle(const char* label) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  const int device = current_device(label);
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& found = handles[device];
  if (found == nullptr) require(cublasLtCreate(&found), label);
  return found;
}

cudaDataType_t data_type(DType type) {
  switch (type) {
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f32:
      return CUDA_R_32F;
    case DType::f64:
      return CUDA_R_64F;
    case DType::i32:
    case DType::u8:
      break;
  }
  return CUDA_R_32F;
}

// What algorithms may do: 16-bit numbers are multiplied as they are or in float, others as they are, except for
// TF32.
std::uint64_t allowed_arithmetic(const MatmulPlan& plan) {
  const auto inputs = [&]() -> std::uint64_t {
    switch (plan.a.type) {
      case DType::f16:
        return CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F;
      case DType::bf16:
        // Algorithms of warpgroups, which take either type, say f16 of themselves. They convert nothing.
        return CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F |
               CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F;
      case DType::f32:
        return CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F |
               (plan.tf32 ? CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 : 0);
      case DType::f64:
        return CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_64F;
      case DType::i32:
      case DType::u8:
        break;
    }
    return 0;
  }();
  const std::uint64_t sums = plan.compute == DType::f64 ? CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_64F
                                                        : CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
  return CUBLASLT_NUMERICAL_IMPL_FLAGS_OP_TYPE_MASK | sums | inputs;
}

// None if there is none.
using Algorithm = std::optional<cublasLtMatmulAlgo_t>;

// What an algorithm is chosen by, the device included.
using Choice = std::array<std::int64_t, 32>;
Choice choice(const char* label, const MatmulPlan& plan, std::uint64_t workspace_bytes) {
  Choice all{};
  auto* next = all.begin();
  const auto add = [&](auto value) { *next++ = static_cast<std::int64_t>(value); };
  for (const ColumnMajor* x : {&plan.a, &plan.b, &plan.c, &plan.d}) {
    add(x->type), add(x->rows), add(x->cols), add(x->leading), add(x->batch_stride), add(x->alignment);
  }
  add(plan.transpose_a), add(plan.transpose_b), add(plan.bias ? alignment_of(plan.bias) : 0), add(plan.batches);
  add(plan.compute), add(plan.tf32), add(workspace_bytes), add(current_device(label));
  return all;
}

// The plan in the terms of cuBLASLt.
struct Description {
  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t a{}, b{}, c{}, d{};
  cublasLtMatmulPreferenceOpaque_t preference{};

  Description(const char* label, const MatmulPlan& plan, std::uint64_t workspace_bytes) {
    const cublasComputeType_t compute = plan.compute == DType::f64 ? CUBLAS_COMPUTE_64F
                                        : plan.tf32                ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                   : CUBLAS_COMPUTE_32F;
    require(cublasLtMatmulDescInit(&operation, compute, data_type(plan.compute)), label);
    const auto describe = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      require(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value), label);
    };
    describe(CUBLASLT_MATMUL_DESC_TRANSA, plan.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    describe(CUBLASLT_MATMUL_DESC_TRANSB, plan.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (plan.bias != nullptr) {
      describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      describe(CUBLASLT_MATMUL_DESC_BIAS_POINTER, plan.bias);
    }
    const auto lay_out = [&](cublasLtMatrixLayoutOpaque_t& layout, const ColumnMajor& matrix) {
      require(cublasLtMatrixLayoutInit(&layout, data_type(matrix.type), static_cast<std::uint64_t>(matrix.rows),
                                       static_cast<std::uint64_t>(matrix.cols), matrix.leading),
              label);
      const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, const auto& value) {
        require(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value), label);
      };
      set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(plan.batches));
      set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, matrix.batch_stride);
    };
    lay_out(a, plan.a), lay_out(b, plan.b), lay_out(c, plan.c), lay_out(d, plan.d);

    require(cublasLtMatmulPreferenceInit(&preference), label);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      require(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value), label);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    // Other schemes would add up parts that were rounded to the type of the result.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_IMPL_MASK, allowed_arithmetic(plan));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t(plan.a.alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t(plan.b.alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t(plan.c.alignment));
    // A bias is read as the result is written, and has no separate alignment here.
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
           std::uint32_t(std::min(plan.d.alignment, plan.bias ? alignment_of(plan.bias) : 256u)));
  }

  Algorithm best_algorithm(const char* label) {
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle(label), &operation, &a, &b, &c, &d,
                                                                 &preference, 1, &best, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::nullopt;
    require(status, label);
    if (found == 0 || best.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return best.algo;
  }
};

// cuBLASLt takes longer to choose than a GPU takes for a small product: choices are kept.
Algorithm algorithm(const char* label, Description& description, const MatmulPlan& plan,
                    std::uint64_t workspace_bytes) {
  constexpr std::size_t most = 4096;  // of a program whose extents are always new
  static std::mutex mutex;
  static std::map<Choice, Algorithm> known;
  const Choice key = choice(label, plan, workspace_bytes);
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  if (known.size() == most) known.clear();
  return known[key] = description.best_algorithm(label);
}

}  // namespace

std::string CublasLt::refusal(const MatmulPlan& plan) {
  if (plan.empty()) return {};
  constexpr const char* label = "kformer::linear[cublaslt]";
  Description description(label, plan, 0);
  if (algorithm(label, description, plan, 0)) return {};
  return "cuBLASLt has no algorithm for these extents, strides and types on this device";
}

void CublasLt::run(const char* label, Stream stream, const MatmulPlan& plan, void* workspace,
                   std::size_t workspace_bytes) {
  if (plan.empty()) return;
  constexpr std::size_t alignment = 256;
  // An empty one may have any address, and cuBLASLt asks for an aligned one.
  if (!std::align(alignment, 1, workspace, workspace_bytes)) workspace = nullptr, workspace_bytes = 0;
  Description description(label, plan, workspace_bytes);
  const Algorithm best = algorithm(label, description, plan, workspace_bytes);
  if (!best) require(CUBLAS_STATUS_NOT_SUPPORTED, label);
  const auto multiply = [&](auto alpha, auto beta) {
    require(cublasLtMatmul(handle(label), &description.operation, &alpha, plan.a.data, &description.a,
                           plan.b.data, &description.b, &beta, plan.c.data, &description.c, plan.d.data,
                           &description.d, &*best, workspace, workspace_bytes, stream),
            label);
  };
  if (plan.compute == DType::f64)
    multiply(plan.alpha, plan.beta);
  else
    multiply(static_cast<float>(plan.alpha), static_cast<float>(plan.beta));
}

}  // namespace kformer::Impl::cuda
