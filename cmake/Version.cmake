# Writes trireme/base/version.h and build_info.h into the build folder.
execute_process(
  COMMAND git describe --always --dirty
  WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
  OUTPUT_VARIABLE TRIREME_GIT_DESCRIPTION
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT TRIREME_GIT_DESCRIPTION)
  set(TRIREME_GIT_DESCRIPTION unknown)
endif()
set(TRIREME_COMPILER "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
string(TOLOWER "${CMAKE_BUILD_TYPE}" TRIREME_BUILD_TYPE)
if(TRIREME_SANITIZE)
  string(APPEND TRIREME_BUILD_TYPE ", ${TRIREME_SANITIZE} sanitizer")
endif()
configure_file(cmake/version.h.in "${PROJECT_BINARY_DIR}/include/trireme/base/version.h" @ONLY)
configure_file(cmake/build_info.h.in "${PROJECT_BINARY_DIR}/include/trireme/base/build_info.h" @ONLY)
