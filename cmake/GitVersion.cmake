# SPDX-License-Identifier: MIT
# Run at build time: writes version.hpp, leaving it alone if nothing changed.
execute_process(COMMAND git -C ${source_dir} rev-parse HEAD OUTPUT_VARIABLE git_sha OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND git -C ${source_dir} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
# An archive has no repository: whoever made it knows the commit (Kformer_REVISION).
if(NOT git_sha)
  set(git_sha ${revision})
endif()
if(NOT git_sha)
  set(git_sha unknown)
endif()
set(git_dirty 0)
if(changes)
  set(git_dirty 1)
endif()
configure_file(${source_dir}/src/measure/version.hpp.in ${output} @ONLY)
