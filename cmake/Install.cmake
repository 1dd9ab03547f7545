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

install(FILES bench/peer_gloo.py bench/peer_ddp.py DESTINATION share/trireme)
if(TRIREME_HIGHS)
  install(FILES ${trireme_highs_libraries} DESTINATION lib)
endif()
if(TARGET trireme_torch)
  install(CODE "file(CREATE_LINK \"${TRIREME_TORCH_PARTS}\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/libtorch\" SYMBOLIC)")
endif()

# The headers that the umbrellas trireme.h, torch.h and plan.h need: `tools/check_headers --write` makes the list.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS cmake/public_headers.txt)
file(STRINGS cmake/public_headers.txt trireme_public_headers REGEX "^[a-z]")
foreach(header IN LISTS trireme_public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "src/trireme/${header}" DESTINATION "include/trireme/${folder}")
endforeach()
install(FILES "${PROJECT_BINARY_DIR}/include/trireme/base/version.h" DESTINATION include/trireme/base)

configure_package_config_file(cmake/TriremeConfig.cmake.in "${PROJECT_BINARY_DIR}/TriremeConfig.cmake"
  INSTALL_DESTINATION lib/cmake/Trireme)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(EXPORT TriremeTargets NAMESPACE Trireme:: DESTINATION lib/cmake/Trireme)
install(FILES "${PROJECT_BINARY_DIR}/TriremeConfig.cmake" "${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake"
  DESTINATION lib/cmake/Trireme)
