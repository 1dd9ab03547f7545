# What the build uses from outside: Debian's packages, and the pinned parts that ./trireme brings.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark QUIET)

if(TRIREME_MPI)
  find_package(MPI QUIET COMPONENTS C)
endif()

# The folder of the parts carries a hash of the file that pins them (the script `trireme` says the same).
file(SHA256 "${PROJECT_SOURCE_DIR}/cmake/parts.txt" trireme_parts_hash)
string(SUBSTRING "${trireme_parts_hash}" 0 12 trireme_parts_hash)
if(DEFINED ENV{TRIREME_CACHE})
  set(trireme_cache "$ENV{TRIREME_CACHE}")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(trireme_cache "$ENV{XDG_CACHE_HOME}/trireme")
else()
  set(trireme_cache "$ENV{HOME}/.cache/trireme")
endif()
if(NOT TRIREME_PARTS)
  set(TRIREME_PARTS "${trireme_cache}/parts-${trireme_parts_hash}")
endif()

if(TRIREME_TORCH)
  list(PREPEND CMAKE_MODULE_PATH "${PROJECT_SOURCE_DIR}/cmake")
  find_package(LibTorch QUIET)
  if(NOT LibTorch_FOUND)
    message(WARNING "No libtorch in ${TRIREME_PARTS}: building without trireme-tensor.\n"
                    "Run ./trireme --help once, which brings it, or give -DTRIREME_PARTS=FOLDER, or -DTRIREME_TORCH=OFF.")
  endif()
endif()
