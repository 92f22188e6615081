# SPDX-License-Identifier: MIT

# kformer_add_block(<library> <block> <Problem>...): the checks of src/ops/<block>, and its kernel lists on every execution
# space of Kokkos, in the library. A space with tuned kernels of its own has their entries in
# src/ops/<block>/<space>/entries.hpp; all share src/ops/<block>/list.hpp.
function(kformer_add_block library block)
  target_sources(${library} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/ops/${block}/problem.cpp)
  foreach(space IN LISTS Kformer_SPACES)
    string(TOLOWER ${space} lower)
    set(entries ops/${block}/${lower}/entries.hpp)
    set(instantiations "")
    set(known "")
    foreach(problem IN LISTS ARGN)
      string(APPEND instantiations
             "template <>\nKernelList<Impl::${problem}, Kokkos::${space}> kernels<Impl::${problem}, Kokkos::${space}>() {\n"
             "  return Impl::List<Impl::${problem}, Kokkos::${space}>::get();\n}\n")
      string(APPEND known "[[maybe_unused]] const bool ${problem}_is_known =\n"
             "    Impl::make_known<Impl::${problem}, Kokkos::${space}>(kernels<Impl::${problem}, Kokkos::${space}>());\n")
    endforeach()
    set(include_entries "")
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${entries})
      set(include_entries "#include \"${entries}\"\n")
    endif()
    set(source ${CMAKE_CURRENT_BINARY_DIR}/ops/${block}/list_${lower}.cpp)
    configure_file(${CMAKE_CURRENT_SOURCE_DIR}/ops/list_space.cpp.in ${source} @ONLY)
    target_sources(${library} PRIVATE ${source})
  endforeach()
endfunction()

# kformer_add_class(<library> <component>/<file> <class>): the class whose members src/<component>/<file>.hpp defines, for every
# storage type on every execution space of Kokkos. Consumers compile its declarations alone. Kernels do the work, so
# GCC optimises a little less, in four fifths of the time.
function(kformer_add_class library file class)
  foreach(space IN LISTS Kformer_SPACES)
    string(TOLOWER ${space} lower)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${file}_${lower}.cpp)
    configure_file(${CMAKE_CURRENT_SOURCE_DIR}/class_space.cpp.in ${source} @ONLY)
    target_sources(${library} PRIVATE ${source})
    set_source_files_properties(
      ${source} PROPERTIES COMPILE_OPTIONS "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:-O2;-fvect-cost-model=dynamic>")
  endforeach()
endfunction()

# kformer_add_cuda_kernels(): src/ops/<block>/cuda/*.cpp of every block and the device's memory pool, where Kokkos has CUDA.
# Free of Kokkos, so that nvcc takes seconds for each.
function(kformer_add_cuda_kernels)
  if("Cuda" IN_LIST Kformer_SPACES)
    file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ops/*/cuda/*.cpp)
    target_sources(kformer_layers PRIVATE ${kernels} memory/cuda/device_pool.cpp)
  endif()
endfunction()

# kformer_add_hopper_kernels(): src/ops/<block>/cuda/hopper/*.cpp, for sm_90a alone, whose instructions no other architecture
# has. That takes CUDA as a language of CMake: else the architecture of all files is Kokkos', and the entries are left out.
function(kformer_add_hopper_kernels)
  if(NOT Kformer_CUDA_LANGUAGE)
    return()
  endif()
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ops/*/cuda/hopper/*.cpp)
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CUDA)
  add_library(kformer_hopper OBJECT ${kernels})
  set_target_properties(kformer_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real)
  target_compile_features(kformer_hopper PRIVATE cxx_std_20)
  # Before that CMake does not know nvcc's flag, which is then in CMAKE_CUDA_FLAGS.
  if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.25.2)
    target_compile_features(kformer_hopper PRIVATE cuda_std_20)
  endif()
  target_include_directories(kformer_hopper PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  if(BUILD_SHARED_LIBS)
    set_target_properties(kformer_hopper PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  target_compile_definitions(kformer_layers PRIVATE KFORMER_ENABLE_HOPPER)
  target_sources(kformer_layers PRIVATE $<TARGET_OBJECTS:kformer_hopper>)
endfunction()

# kformer_kokkos_sources(<target>): compiles what includes Kokkos as Kokkos wants it, as CUDA or with a precompiled header.
function(kformer_kokkos_sources target)
  if(Kformer_CUDA_LANGUAGE)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    set_source_files_properties(${sources} PROPERTIES LANGUAGE CUDA)
    # nvcc does not take fmt's checks of format strings at compile time for constant expressions.
    target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_CONSTEVAL=;FMT_USE_CONSTEVAL=0;FMT_USE_CONSTEXPR=1>)
  else()
    kformer_reuse_from(${target} kformer_kokkos_header)
  endif()
endfunction()

# kformer_precompile(<target> <dependency> <header>...): the headers, compiled once for all targets that reuse them from here.
function(kformer_precompile target dependency)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "")
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${target} PRIVATE ${dependency})
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  if(BUILD_SHARED_LIBS)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
endfunction()

# kformer_reuse_from(<target> <header target>): the target uses the header that is compiled there, if any is.
function(kformer_reuse_from target header)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_precompile_headers(${target} REUSE_FROM ${header})
  endif()
endfunction()

# kformer_reuse_header(<target> <header target> <dependency> <header>...): the target uses the headers, which are compiled once for
# all targets that name the same.
function(kformer_reuse_header target header dependency)
  if(NOT TARGET ${header})
    kformer_precompile(${header} "${dependency}" ${ARGN})
  endif()
  kformer_reuse_from(${target} ${header})
endfunction()

# kformer_optimise_less(<target>...): the targets' own files are compiled in half the time, for code in which no time is spent.
function(kformer_optimise_less)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>>:-O1>)
  endforeach()
endfunction()

# kformer_file_sources(<target>): compiles code of that kind that is free of Kokkos.
function(kformer_file_sources target)
  kformer_reuse_header(${target} kformer_files_header "fmt::fmt;nlohmann_json::nlohmann_json" <fmt/format.h> <nlohmann/json.hpp>)
  kformer_optimise_less(${target} kformer_files_header)
endfunction()

# kformer_program_sources(<target>): compiles code of that kind that includes Kokkos.
function(kformer_program_sources target)
  if(Kformer_CUDA_LANGUAGE)
    kformer_kokkos_sources(${target})
    return()
  endif()
  kformer_reuse_header(${target} kformer_programs_header "Kokkos::kokkos;fmt::fmt" <Kokkos_Core.hpp> <fmt/format.h>)
  kformer_optimise_less(${target} kformer_programs_header)
endfunction()

# kformer_add_simd_kernels(<library> <block> [<set>...]): src/ops/<block>/host/kernels.cpp in the library, by the next function.
function(kformer_add_simd_kernels library block)
  kformer_add_simd_file(${library} ${block} ${PROJECT_SOURCE_DIR}/src/ops/${block}/host/kernels.cpp ${ARGN})
endfunction()

# kformer_add_simd_file(<library> <name> <file> [<set>...]): the file in the library, compiled once per instruction set
# (generic, avx2, avx512 and those named) and chosen between at run time. The flags stay with these files: nothing else is
# compiled for more than the compiler's default processor.
function(kformer_add_simd_file library name file)
  set(sets generic)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND sets avx2 avx512 ${ARGN})
  endif()
  foreach(isa IN LISTS sets)
    kformer_add_simd_object(${library} ${name} ${file} ${isa})
  endforeach()
endfunction()

# kformer_add_amx_kernels(<library> <block>): src/ops/<block>/host/amx/kernels.cpp in the library, on x86 alone, and whether this
# process may run them.
function(kformer_add_amx_kernels library block)
  set(amx ${CMAKE_CURRENT_SOURCE_DIR}/ops/${block}/host/amx)
  # Never as CUDA: it asks an x86 processor.
  kformer_add_simd_object(${library} ${block}_amx_processor ${amx}/processor.cpp generic)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    kformer_add_simd_object(${library} ${block} ${amx}/kernels.cpp amx_bf16)
  endif()
endfunction()

# kformer_add_simd_object(<library> <name> <file> <set>): the file in the library, compiled for one instruction set.
function(kformer_add_simd_object library name file isa)
  set(flags_generic "")
  set(flags_avx2 -mavx2 -mfma -mf16c)
  set(flags_avx512 ${flags_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
  set(flags_avx512_bf16 ${flags_avx512} -mavx512bf16)
  set(flags_avx512_vnni ${flags_avx512} -mavx512vnni)
  set(flags_amx_bf16 ${flags_avx512}) # the instructions of tiles are written for the assembler
  set(objects kformer_${name}_${isa})
  add_library(${objects} OBJECT ${file})
  target_compile_features(${objects} PRIVATE cxx_std_20)
  target_compile_definitions(${objects} PRIVATE KFORMER_ISA=${isa})
  # Sums of products become fused multiply-adds; comparisons raise no floating-point exceptions anybody would see.
  target_compile_options(${objects} PRIVATE -O3 -ffp-contract=fast -fno-math-errno -fno-trapping-math ${flags_${isa}})
  # Of the public headers only those without functions: what this instruction set compiles must stay here.
  target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}
                                                ${PROJECT_SOURCE_DIR}/include)
  if(BUILD_SHARED_LIBS)
    set_target_properties(${objects} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  target_sources(${library} PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()

# kformer_optional_library(<target> <NAME> <package> <library> [<argument of find_package>...]): links the library and
# defines KFORMER_ENABLE_<NAME> as Kformer_ENABLE_<NAME> asks: AUTO (where found), ON (else an error), OFF. Sets
# Kformer_HAS_<NAME> for the exported package.
function(kformer_optional_library target name package library)
  set(has OFF)
  if(NOT Kformer_ENABLE_${name} STREQUAL OFF)
    find_package(${package} QUIET ${ARGN})
    if(TARGET ${library})
      set(has ON)
      target_compile_definitions(${target} PRIVATE KFORMER_ENABLE_${name})
      target_link_libraries(${target} PRIVATE ${library})
    elseif(NOT Kformer_ENABLE_${name} STREQUAL AUTO)
      message(FATAL_ERROR "Kformer_ENABLE_${name} is ${Kformer_ENABLE_${name}} and CMake did not find ${package}. Name its "
                          "prefix with -D${package}_ROOT=PREFIX, or choose AUTO or OFF.")
    endif()
  endif()
  message(STATUS "Kformer: ${package}: ${has}")
  set(Kformer_HAS_${name} ${has} CACHE INTERNAL "")
endfunction()

# kformer_public_headers(<target> <folder>... [EXCEPT <header>...]): include/kformer/<folder>/**/*.hpp, or for "." the
# headers of include/kformer itself, are installed with the target, and each must compile alone. A folder may also be one
# header.
function(kformer_public_headers target)
  cmake_parse_arguments(arg "" "" "EXCEPT" ${ARGN})
  get_target_property(type ${target} TYPE)
  set(scope PUBLIC)
  if(type STREQUAL INTERFACE_LIBRARY)
    set(scope INTERFACE)
  endif()
  set(base ${PROJECT_SOURCE_DIR}/include)
  set(headers "")
  foreach(folder IN LISTS arg_UNPARSED_ARGUMENTS)
    if(folder MATCHES "\\.hpp$")
      set(found ${base}/kformer/${folder})
    elseif(folder STREQUAL ".")
      file(GLOB found CONFIGURE_DEPENDS ${base}/kformer/*.hpp)
    else()
      file(GLOB_RECURSE found CONFIGURE_DEPENDS ${base}/kformer/${folder}/*.hpp)
    endif()
    list(APPEND headers ${found})
  endforeach()
  list(TRANSFORM arg_EXCEPT PREPEND ${base}/kformer/)
  list(REMOVE_ITEM headers ${arg_EXCEPT})
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${base} FILES ${headers})
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# kformer_add_files_library(<component>): the library Kformer::<component> from src/<component> and include/kformer/<component>,
# a component of the package. JSON is header-only and fmt is linked by its path: a consumer needs to find neither.
function(kformer_add_files_library component)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(kformer_${component} ${sources})
  add_library(Kformer::${component} ALIAS kformer_${component})
  set_target_properties(kformer_${component} PROPERTIES EXPORT_NAME ${component})
  target_compile_features(kformer_${component} PUBLIC cxx_std_20)
  target_include_directories(kformer_${component} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  get_target_property(fmt_library fmt::fmt LOCATION)
  target_link_libraries(kformer_${component} PRIVATE $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
                                                $<BUILD_INTERFACE:fmt::fmt> $<INSTALL_INTERFACE:${fmt_library}>)
  kformer_public_headers(kformer_${component} ${component})
  install(TARGETS kformer_${component} EXPORT Kformer_${component}Targets FILE_SET HEADERS)
  install(EXPORT Kformer_${component}Targets NAMESPACE Kformer:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Kformer)
endfunction()

# kformer_space_sources(<variable> <template>): the template, filled in for every execution space of Kokkos.
function(kformer_space_sources variable template)
  set(sources "")
  foreach(space IN LISTS Kformer_SPACES)
    string(TOLOWER ${space} lower)
    string(REPLACE ".cpp.in" "_${lower}.cpp" source ${CMAKE_CURRENT_BINARY_DIR}/generated/${template})
    configure_file(${template} ${source} @ONLY)
    list(APPEND sources ${source})
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()
