# SPDX-License-Identifier: MIT
# NCCL: NCCL_INCLUDE_DIR and NCCL_LIBRARY. Packages of Python have a library without the name for linkers.
find_path(NCCL_INCLUDE_DIR nccl.h)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h version_lines REGEX "#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  list(TRANSFORM version_lines REPLACE ".*NCCL_(MAJOR|MINOR|PATCH) +([0-9]+).*" "\\2")
  list(JOIN version_lines . NCCL_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION
  REASON_FAILURE_MESSAGE "Name its prefix with -DNCCL_ROOT=PREFIX, or build with -DKformer_ENABLE_NCCL=OFF.")
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
