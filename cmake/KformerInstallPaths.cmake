# SPDX-License-Identifier: MIT
# Installed programs start from any prefix: they find the library beside them, and Kokkos where this build found it.
if(PROJECT_IS_TOP_LEVEL AND NOT DEFINED CMAKE_INSTALL_RPATH)
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set(origin $ORIGIN)
  if(APPLE)
    set(origin @loader_path)
  endif()
  set(CMAKE_INSTALL_RPATH ${origin}/${bin_to_lib} ${origin})
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
  # CMake takes no path of a library that lies inside the source tree, as that of scripts/quickstart does.
  foreach(package IN ITEMS Kokkos KokkosKernels)
    cmake_path(SET libraries NORMALIZE "${${package}_DIR}/../..")
    if(${package}_DIR AND NOT libraries IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
      list(APPEND CMAKE_INSTALL_RPATH ${libraries})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES CMAKE_INSTALL_RPATH)
endif()
