// SPDX-License-Identifier: MIT
// Stands in for libcuda.so.1, and fails as drivers do: KFORMER_FAKE_DRIVER says how. With KFORMER_NO_FUNCTIONS it is a
// library without any.
//
// It cannot succeed. A runtime of CUDA 13.0 whose cuInit succeeded asks cuGetExportTable for tables that NVIDIA does not
// document, and without them every call ends with "invalid argument".
#ifndef KFORMER_NO_FUNCTIONS
#include <stdlib.h>
#include <string.h>

// Of CUresult, cuda.h.
enum { success = 0, invalid_value = 1, no_device = 100, not_ready = 802, unknown = 999 };

static int fails_by(const char* what) {
  const char* how = getenv("KFORMER_FAKE_DRIVER");
  return how && strcmp(how, what) == 0;
}

int cuDriverGetVersion(int* version) {
  *version = fails_by("too old") ? 12080 : 13000;
  return success;
}

int cuInit(unsigned flags) {
  (void)flags;
  if (fails_by("no device")) return no_device;
  if (fails_by("not ready")) return not_ready;
  return unknown;
}

int cuGetExportTable(const void** table, const void* id) {
  (void)table, (void)id;
  return invalid_value;
}

// What is never reached, after cuInit.
static void never(void) { abort(); }

int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* status) {
  (void)version, (void)flags;
  void (*found)(void) = never;
  if (strcmp(name, "cuGetProcAddress") == 0) found = (void (*)(void))cuGetProcAddress_v2;
  if (strcmp(name, "cuInit") == 0) found = (void (*)(void))cuInit;
  if (strcmp(name, "cuDriverGetVersion") == 0) found = (void (*)(void))cuDriverGetVersion;
  if (strcmp(name, "cuGetExportTable") == 0) found = (void (*)(void))cuGetExportTable;
  memcpy(function, &found, sizeof(found));
  if (status) *status = 0;
  return success;
}

// The runtime looks for this one by its name.
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
#endif
