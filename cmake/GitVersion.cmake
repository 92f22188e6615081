# SPDX-License-Identifier: MIT
# Run at build time: writes version.hpp, leaving it alone if nothing changed.
set(git_sha "${revision}")
set(changes "")
execute_process(COMMAND git -C ${source_dir} rev-parse --show-toplevel OUTPUT_VARIABLE repository OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET)
file(REAL_PATH ${source_dir} sources)
# An archive has no repository, but may be unpacked in that of another project. Whoever made it knows the commit (Kformer_REVISION).
if(repository STREQUAL sources)
  execute_process(COMMAND git -C ${source_dir} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
  if(NOT git_sha)
    execute_process(COMMAND git -C ${source_dir} rev-parse HEAD OUTPUT_VARIABLE git_sha OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(NOT git_sha)
  set(git_sha unknown)
endif()
set(git_dirty 0)
if(changes)
  set(git_dirty 1)
endif()
configure_file(${source_dir}/src/measure/version.hpp.in ${output} @ONLY)
