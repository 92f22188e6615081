# SPDX-License-Identifier: MIT
# Options that have no effect, or another one than they say, are refused.

# kformer_resolve_auto(<option>...): AUTO stays; what CMake takes for true or false otherwise becomes ON or OFF.
function(kformer_resolve_auto)
  foreach(option IN LISTS ARGN)
    string(TOUPPER "${${option}}" value)
    if(value MATCHES "^(1|ON|YES|TRUE|Y)$")
      set(value ON)
    elseif(value MATCHES "^(0|OFF|NO|FALSE|N)$")
      set(value OFF)
    elseif(NOT value STREQUAL AUTO)
      message(FATAL_ERROR "${option} is '${${option}}'; choose AUTO (where found), ON or OFF.")
    endif()
    set(${option} ${value} PARENT_SCOPE)
  endforeach()
endfunction()

# kformer_require_for(<option> <needed option>...): an option that is ON needs others that are.
function(kformer_require_for option)
  foreach(needed IN LISTS ARGN)
    if(${option} AND NOT ${needed})
      message(FATAL_ERROR "${option} is ON and needs ${needed}, which is OFF.")
    endif()
  endforeach()
endfunction()
