# SPDX-License-Identifier: MIT

# kformer_add_space_tests(<room>/<name>...): the files tests/<room>/<name>.cpp as one program per execution space of
# Kokkos. Each file is one Boost.Test suite called <name>, and one ctest per number of threads.
function(kformer_add_space_tests)
  list(TRANSFORM ARGN APPEND .cpp OUTPUT_VARIABLE sources)
  foreach(space IN LISTS Kformer_SPACES)
    string(TOLOWER ${space} lower)
    set(program kformer_tests_${lower})
    add_executable(${program} ${sources} support/main.cpp)
    target_link_libraries(${program} PRIVATE Kformer::kformer Boost::unit_test_framework)
    target_compile_definitions(${program} PRIVATE BOOST_TEST_DYN_LINK KFORMER_TEST_SPACE=Kokkos::${space})
    target_include_directories(${program} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
    kformer_kokkos_sources(${program})
    set(threads 1)
    if(lower MATCHES "openmp|threads")
      set(threads 1 2 4)
    endif()
    foreach(test IN LISTS ARGN)
      get_filename_component(suite ${test} NAME)
      foreach(n IN LISTS threads)
        set(name ${test}[${lower},${n}])
        add_test(NAME ${name} COMMAND ${program} --run_test=${suite} --kokkos-num-threads=${n})
        set_tests_properties(${name} PROPERTIES LABELS "unit;${lower};${suite}" SKIP_RETURN_CODE 77 PROCESSORS ${n}
                                                ENVIRONMENT "OMP_PROC_BIND=false;KOKKOS_DISABLE_WARNINGS=1")
      endforeach()
    endforeach()
  endforeach()
endfunction()
