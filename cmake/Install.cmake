# What `cmake --install` gives: programs, libraries, headers, and the package that find_package(Trireme) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_LIBDIR lib)  # programs look for ../lib

install(TARGETS trireme EXPORT TriremeTargets LIBRARY DESTINATION lib)
set(trireme_installed_libraries trireme_mpi trireme_torch)
if(TRIREME_CUDA)  # otherwise it is a part of trireme_torch
  list(APPEND trireme_installed_libraries trireme_gpu)
endif()
foreach(target IN LISTS trireme_installed_libraries)
  if(TARGET ${target})
    install(TARGETS ${target} LIBRARY DESTINATION lib)
  endif()
endforeach()
foreach(target trireme-program trireme-tensor trireme-peer-mpi)
  if(TARGET ${target})
    install(TARGETS ${target} RUNTIME DESTINATION bin)
  endif()
endforeach()

set(trireme_header_folders ${TRIREME_PURE_FOLDERS})
if(TARGET trireme_torch)
  list(APPEND trireme_header_folders tensor runtime parallel models train)
endif()
list(TRANSFORM trireme_header_folders PREPEND "${PROJECT_SOURCE_DIR}/src/trireme/")
install(FILES bench/peer_gloo.py bench/peer_ddp.py DESTINATION share/trireme)
install(FILES src/trireme/trireme.h DESTINATION include/trireme)
install(DIRECTORY ${trireme_header_folders} DESTINATION include/trireme FILES_MATCHING PATTERN "*.h")
install(FILES "${PROJECT_BINARY_DIR}/include/trireme/base/version.h" DESTINATION include/trireme/base)

configure_package_config_file(cmake/TriremeConfig.cmake.in "${PROJECT_BINARY_DIR}/TriremeConfig.cmake"
  INSTALL_DESTINATION lib/cmake/Trireme)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(EXPORT TriremeTargets NAMESPACE Trireme:: DESTINATION lib/cmake/Trireme)
install(FILES "${PROJECT_BINARY_DIR}/TriremeConfig.cmake" "${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake"
  DESTINATION lib/cmake/Trireme)
