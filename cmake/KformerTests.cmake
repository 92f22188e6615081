# SPDX-License-Identifier: MIT

# A test that lacks something says "skipped: <what>" and exits with 77. Only programs of a build for GPUs cannot, where
# there is no device (or no driver, without which they do not even start).
set(Kformer_TEST_SKIPPED SKIP_RETURN_CODE 77)
if("Cuda" IN_LIST Kformer_SPACES)
  list(APPEND Kformer_TEST_SKIPPED SKIP_REGULAR_EXPRESSION
       "there is no such device here|libcuda.so.1: cannot open shared object")
endif()

# The environment of ranks that outnumber cores, and that root may run, in a container. A rank that waits sleeps already
# (docs/parallel.md). Open MPI reads these, and UCX, of which MPICH makes use, the last: without it, a rank that copies from the
# memory of one that has died aborts.
set(Kformer_OVERSUBSCRIBED_RANKS
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_mpi_yield_when_idle=0
    OMPI_MCA_btl_vader_single_copy_mechanism=none UCX_TLS=^cma)
# Sizes that cannot be had are asked for on purpose, which the address sanitizer would take for a fault. Where it keeps stack frames
# after a return, those of GCC do not align vectors of 64 bytes.
set(Kformer_ASAN_OPTIONS ASAN_OPTIONS=allocator_may_return_null=1:detect_stack_use_after_return=0)
# Tests may have more threads than there are cores, and waiting threads must then leave them to the others.
set(Kformer_TEST_ENVIRONMENT OMP_PROC_BIND=false OMP_WAIT_POLICY=passive KOKKOS_DISABLE_WARNINGS=1 ${Kformer_ASAN_OPTIONS}
                             KFORMER_DOCS=${PROJECT_SOURCE_DIR}/docs)
# Open MPI keeps memory, and call stacks say which of its modules did. Frame pointers would end in them, and finding callers without
# takes most of the time of a training: a few suffice. Tests load libraries of their own before the sanitizer's.
list(APPEND Kformer_OVERSUBSCRIBED_RANKS
     ${Kformer_ASAN_OPTIONS}:fast_unwind_on_malloc=0:malloc_context_size=6:verify_asan_link_order=0
     LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/leak_sanitizer.supp:print_suppressions=0)

# Seconds after which a test is ended. Sanitizers make programs many times slower.
set(Kformer_TEST_TIMEOUT 600)
string(TOUPPER "CMAKE_CXX_FLAGS_${CMAKE_BUILD_TYPE}" flags)
if("${CMAKE_CXX_FLAGS} ${${flags}}" MATCHES "-fsanitize=")
  set(Kformer_TEST_TIMEOUT 6000)
endif()
unset(flags)

# kformer_add_suites(<program> NAMES <component>/<name>... [SUFFIX <text>] [WITHOUT <pattern>] [ARGUMENTS <arg>...] [LABELS <label>...]
# [ENVIRONMENT <variable>=<value>...]): one ctest <component>/<name><suffix> for each name, which runs the Boost.Test suite <name>
# of the program, of which WITHOUT leaves out cases. It counts as one processor whatever its threads: most of its time goes into
# the reference, on one. The target kformer-tests builds all programs of tests that are not labelled full.
function(kformer_add_suites program)
  cmake_parse_arguments(arg "" "SUFFIX;WITHOUT" "NAMES;ARGUMENTS;LABELS;ENVIRONMENT" ${ARGN})
  foreach(name IN LISTS arg_NAMES)
    get_filename_component(suite ${name} NAME)
    set(test ${name}${arg_SUFFIX})
    set(without "")
    if(arg_WITHOUT)
      set(without --run_test=!${suite}/${arg_WITHOUT})
    endif()
    add_test(NAME ${test} COMMAND ${program} --run_test=${suite} ${without} ${arg_ARGUMENTS})
    set_tests_properties(${test} PROPERTIES LABELS "${arg_LABELS};${suite}" TIMEOUT ${Kformer_TEST_TIMEOUT}
                                            ENVIRONMENT "${Kformer_TEST_ENVIRONMENT};${arg_ENVIRONMENT}"
                                            ${Kformer_TEST_SKIPPED})
  endforeach()
  if(NOT "full" IN_LIST arg_LABELS)
    add_dependencies(kformer-tests ${program})
  endif()
endfunction()

# kformer_add_python_test(<folder>/<name> <label> [WITHOUT <class>...]): tests/<folder>/<name>.py, which finds the sources in
# KFORMER_SOURCE. The classes of WITHOUT need published data: they are a ctest of their own, <folder>/<name>_data.
function(kformer_add_python_test test label)
  cmake_parse_arguments(arg "" "" "WITHOUT" ${ARGN})
  set(run ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/support/run_unittests.py
          ${PROJECT_SOURCE_DIR}/tests/${test}.py)
  set(tests ${test})
  if(arg_WITHOUT)
    add_test(NAME ${test} COMMAND ${run} --without ${arg_WITHOUT})
    add_test(NAME ${test}_data COMMAND ${run} --only ${arg_WITHOUT})
    list(APPEND tests ${test}_data)
  else()
    add_test(NAME ${test} COMMAND ${run})
  endif()
  set_tests_properties(${tests} PROPERTIES LABELS ${label} ENVIRONMENT "KFORMER_SOURCE=${PROJECT_SOURCE_DIR}"
                                           ${Kformer_TEST_SKIPPED})
endfunction()

# kformer_add_program_test(<folder>/<name> <label> <variable>=<program> [WITHOUT <class>...]): the same for a test that runs the
# program.
function(kformer_add_program_test test label environment)
  cmake_parse_arguments(arg "" "" "WITHOUT" ${ARGN})
  kformer_add_python_test(${test} ${label} WITHOUT ${arg_WITHOUT})
  set(tests ${test})
  if(arg_WITHOUT)
    list(APPEND tests ${test}_data)
  endif()
  # One processor: most of their time goes into starting programs, and into references on one thread.
  set_tests_properties(${tests} PROPERTIES TIMEOUT ${Kformer_TEST_TIMEOUT})
  set_property(TEST ${tests} APPEND PROPERTY ENVIRONMENT "${Kformer_TEST_ENVIRONMENT};${environment}")
endfunction()

# kformer_test_sources(<program>): compiles tests as Kokkos wants it, as CUDA or with precompiled headers. A file main.cpp
# says which parts of Boost.Test it wants before it includes them.
function(kformer_test_sources program)
  if(Kformer_CUDA_LANGUAGE)
    kformer_kokkos_sources(${program})
    return()
  endif()
  kformer_reuse_header(${program} kformer_tests_header "Kokkos::kokkos;Boost::unit_test_framework" <Kokkos_Core.hpp>
                       <boost/test/unit_test.hpp>)
  target_compile_definitions(kformer_tests_header PRIVATE BOOST_TEST_DYN_LINK)
  get_target_property(sources ${program} SOURCES)
  list(FILTER sources INCLUDE REGEX "main.cpp$")
  set_source_files_properties(${sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# kformer_test_program(<program> <source>...): a Boost.Test program on the headers and the internals of the library.
function(kformer_test_program program)
  add_executable(${program} ${ARGN})
  target_link_libraries(${program} PRIVATE kformer_test_references kformer_emulated_amx Boost::unit_test_framework)
  target_compile_definitions(${program} PRIVATE BOOST_TEST_DYN_LINK)
endfunction()

# kformer_add_space_tests(<component>/<name>...): the files tests/<component>/<name>.cpp as one program per execution space of
# Kokkos. Each file is one Boost.Test suite called <name>, and one ctest per number of threads.
function(kformer_add_space_tests)
  list(TRANSFORM ARGN APPEND .cpp OUTPUT_VARIABLE sources)
  foreach(space IN LISTS Kformer_SPACES)
    string(TOLOWER ${space} lower)
    set(program kformer_tests_${lower})
    kformer_test_program(${program} ${sources} support/every_kernel.cpp support/main.cpp)
    target_compile_definitions(${program} PRIVATE KFORMER_TEST_SPACE=Kokkos::${space})
    if(TARGET Kformer::load) # tests that read tensor files
      target_link_libraries(${program} PRIVATE Kformer::load)
      target_compile_definitions(${program} PRIVATE KFORMER_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    endif()
    kformer_test_sources(${program})
    # The Serial space is the case of one thread.
    set(threads 1)
    if(lower MATCHES "openmp|threads")
      set(threads 2 4)
    endif()
    foreach(n IN LISTS threads)
      # Two threads show most of what four do: `quickstart test` leaves those to a stage of `--full`, which runs the blocks on
      # them, not the models that are made of blocks, nor the suites that last longest, nor double, whose reference takes half
      # of the time.
      set(names ${ARGN})
      set(full "")
      set(without "")
      if(n EQUAL 4)
        list(FILTER names INCLUDE REGEX "^ops/")
        list(FILTER names EXCLUDE REGEX "^ops/(attention_kernels|contract|lora|quantized_adapters)$")
        set(full full more)
        set(without WITHOUT *<double>)
      endif()
      kformer_add_suites(
        ${program} NAMES ${names} SUFFIX "[${lower},${n}]" ${without} ARGUMENTS --kokkos-num-threads=${n} LABELS unit ${lower}
        ${full})
    endforeach()
  endforeach()
endfunction()

# kformer_add_host_tests(<component>/<name>...): files tests/<component>/<name>.cpp that ask nothing of the execution space.
function(kformer_add_host_tests)
  list(TRANSFORM ARGN APPEND .cpp OUTPUT_VARIABLE sources)
  kformer_test_program(kformer_tests_host ${sources} support/main.cpp)
  kformer_test_sources(kformer_tests_host)
  kformer_add_suites(kformer_tests_host NAMES ${ARGN} LABELS unit)
endfunction()

# kformer_without_kokkos(<target>): its sources, which name no more of Kokkos than its stand-in declares. Most of the time of their
# tests goes into them.
function(kformer_without_kokkos target)
  target_include_directories(
    ${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support/fake_kokkos ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
                      ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/support)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target}
                         PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>>:-O2>)
endfunction()

# kformer_add_first_contact(): kformer_first_contact, every tuned kernel on small shapes without Kokkos: nvcc alone builds it, or it
# runs on emulated blocks.
function(kformer_add_first_contact)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/first_contact/*.cpp)
  list(APPEND sources ${PROJECT_SOURCE_DIR}/src/core/tolerance.cpp)
  if("Cuda" IN_LIST Kformer_SPACES)
    set(program ${CMAKE_CURRENT_BINARY_DIR}/kformer_first_contact)
    set(architectures ${CMAKE_CUDA_ARCHITECTURES})
    list(FILTER architectures INCLUDE REGEX "^[0-9]+")
    list(TRANSFORM architectures REPLACE "[^0-9].*" "")
    file(GLOB kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/*/cuda/*.?pp ${PROJECT_SOURCE_DIR}/src/ops/*/cuda/hopper/*.?pp
                                        ${CMAKE_CURRENT_SOURCE_DIR}/first_contact/*.hpp)
    set(script ${PROJECT_SOURCE_DIR}/scripts/build_first_contact)
    add_custom_command(
      OUTPUT ${program}
      COMMAND ${Python3_EXECUTABLE} ${script} ${program} ${architectures}
      DEPENDS ${script} ${sources} ${kernels}
      COMMENT "Building kformer_first_contact with nvcc alone")
    # Ninja has a rule of the target's name in this folder, too, which must not be the program.
    add_custom_target(build-first-contact ALL DEPENDS ${program})
    add_dependencies(kformer-tests build-first-contact)
  else()
    set(program kformer_first_contact)
    add_executable(kformer_first_contact ${sources} $<TARGET_OBJECTS:kformer_emulated_kernels>)
    kformer_without_kokkos(kformer_first_contact)
  endif()
  # The other cases take a minute on emulated blocks, whose kernels have suites of their own.
  add_test(NAME cuda/first_contact_program COMMAND ${program} --first)
  add_test(NAME cuda/first_contact_program.all COMMAND ${program} --no-times)
  set_tests_properties(cuda/first_contact_program cuda/first_contact_program.all
                       PROPERTIES LABELS "unit;full" TIMEOUT ${Kformer_TEST_TIMEOUT} ${Kformer_TEST_SKIPPED})
  set_tests_properties(cuda/first_contact_program.all PROPERTIES LABELS "unit;full;more")
endfunction()

# kformer_add_emulated_tests(<component>/<name>...): CUDA kernels on emulated blocks, see src/emulated_cuda/emulation.hpp, and the
# memory pool of an imagined device. They are compiled for the host, whatever Kokkos was built for. `quickstart test` leaves them
# to `--full`.
function(kformer_add_emulated_tests)
  list(TRANSFORM ARGN APPEND .cpp OUTPUT_VARIABLE sources)
  set(src ${PROJECT_SOURCE_DIR}/src/ops)
  file(GLOB kernels CONFIGURE_DEPENDS ${src}/*/cuda/*.cpp ${src}/*/cuda/hopper/*.cpp
                                      ${CMAKE_CURRENT_SOURCE_DIR}/support/emulated_cuda/*.cpp)
  # What calls the CUDA runtime or a library of it.
  list(FILTER kernels EXCLUDE REGEX "/(common/cuda/launch|linear/cuda/matmul).cpp$")
  add_library(kformer_emulated_kernels OBJECT ${kernels})
  kformer_without_kokkos(kformer_emulated_kernels)
  set(pool ${PROJECT_SOURCE_DIR}/src/memory/cuda/device_pool.cpp)
  set_source_files_properties(${pool} cuda/device_pool.cpp PROPERTIES INCLUDE_DIRECTORIES
                                                                      ${CMAKE_CURRENT_SOURCE_DIR}/support/fake_cuda)
  kformer_test_program(
    kformer_tests_emulated
    ${sources}
    $<TARGET_OBJECTS:kformer_emulated_kernels>
    first_contact/device.cpp
    first_contact/report.cpp
    ${pool}
    support/every_kernel.cpp
    support/main.cpp)
  target_include_directories(kformer_tests_emulated PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support)
  target_compile_definitions(kformer_tests_emulated PRIVATE KFORMER_TEST_SPACE=Kokkos::DefaultHostExecutionSpace)
  kformer_test_sources(kformer_tests_emulated)
  kformer_add_suites(kformer_tests_emulated NAMES ${ARGN} LABELS unit full)
endfunction()

# kformer_add_tuned_tests(<component>/<name>...): what the emulated tests check, of the same kernels on the device. Links little
# besides.
function(kformer_add_tuned_tests)
  list(TRANSFORM ARGN APPEND .cpp OUTPUT_VARIABLE sources)
  kformer_test_program(kformer_tests_tuned ${sources} support/every_kernel.cpp support/main.cpp)
  target_compile_definitions(kformer_tests_tuned PRIVATE KFORMER_TEST_SPACE=Kokkos::Cuda)
  kformer_test_sources(kformer_tests_tuned)
  kformer_add_suites(kformer_tests_tuned NAMES ${ARGN} LABELS unit cuda)
endfunction()
