# SPDX-License-Identifier: MIT

# kformer_add_block(<block> <Problem>...): the checks of src/ops/<block>, and its kernel lists on every execution space of
# Kokkos. A space with its own src/ops/<block>/list_<space>.cpp uses that; the others share src/ops/<block>/list.hpp.
function(kformer_add_block block)
  target_sources(kformer PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/ops/${block}/problem.cpp)
  foreach(space IN LISTS Kformer_SPACES)
    string(TOLOWER ${space} lower)
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/ops/${block}/list_${lower}.cpp)
    if(NOT EXISTS ${source})
      set(instantiations "")
      foreach(problem IN LISTS ARGN)
        string(APPEND instantiations
               "template KernelList<Impl::${problem}, Kokkos::${space}> kernels<Impl::${problem}, Kokkos::${space}>();\n")
      endforeach()
      set(source ${CMAKE_CURRENT_BINARY_DIR}/ops/${block}/list_${lower}.cpp)
      configure_file(${CMAKE_CURRENT_SOURCE_DIR}/ops/list_space.cpp.in ${source} @ONLY)
    endif()
    target_sources(kformer PRIVATE ${source})
  endforeach()
endfunction()

# kformer_kokkos_sources(<target>): compiles what includes Kokkos as Kokkos wants it, as CUDA or with a precompiled header.
function(kformer_kokkos_sources target)
  if(Kformer_CUDA_LANGUAGE)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    set_source_files_properties(${sources} PROPERTIES LANGUAGE CUDA)
  else()
    target_precompile_headers(${target} PRIVATE <Kokkos_Core.hpp>)
  endif()
endfunction()
