// SPDX-License-Identifier: MIT
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>

/// \file
/// The calls of NCCL that src/parallel makes, for processes of one machine, which exchange messages through shared memory.
/// As with communicators of NCCL that do not block, what needs other ranks is in progress until they come; no call is made
/// meanwhile; none is split that has messages under way; and the end of one waits for the device.

using ncclComm_t = struct FakeComm*;
struct ncclUniqueId {
  char internal[128];
};
enum ncclResult_t {
  ncclSuccess = 0,
  ncclSystemError = 2,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclUint8 = 1 };
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER {-1}
#define NCCL_SPLIT_NOCOLOR -1

namespace kformer::Testing {
inline std::atomic<ncclResult_t> broken_nccl =
    ncclSuccess;  ///< what communicators say of their state, if not that all is well
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
