# What the build uses from outside: Debian's packages, and the pinned parts that ./trireme brings.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 QUIET)  # for the programs
include(CTest)
if(BUILD_TESTING)
  find_package(GTest QUIET)
endif()
find_package(benchmark QUIET)

if(TRIREME_MPI)
  find_package(MPI QUIET COMPONENTS C)
endif()

if(DEFINED ENV{TRIREME_CACHE})
  set(trireme_cache "$ENV{TRIREME_CACHE}")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(trireme_cache "$ENV{XDG_CACHE_HOME}/trireme")
else()
  set(trireme_cache "$ENV{HOME}/.cache/trireme")
endif()
# The folder of parts carries a hash of the file that pins them (the script `trireme` says the same).
function(trireme_find_parts variable list folder)
  if(NOT ${variable})
    file(SHA256 "${PROJECT_SOURCE_DIR}/cmake/${list}" hash)
    string(SUBSTRING "${hash}" 0 12 hash)
    set(${variable} "${trireme_cache}/${folder}-${hash}" PARENT_SCOPE)
  endif()
endfunction()
trireme_find_parts(TRIREME_PARTS parts.txt parts)
trireme_find_parts(TRIREME_TORCH_PARTS torch_parts.txt torch)

# HiGHS is opened at run time: only its C header is needed here.
set(TRIREME_HIGHS "${TRIREME_PARTS}/highsbox/highs_dist")
if(TRIREME_SANITIZE)  # they would report what happens inside a library that they do not see
  set(TRIREME_HIGHS "")
elseif(NOT EXISTS "${TRIREME_HIGHS}/include/highs/interfaces/highs_c_api.h")
  set(TRIREME_HIGHS "")
  message(STATUS "No HiGHS in ${TRIREME_PARTS}: trireme plan will do without it. ./trireme --help brings it.")
endif()

if(TRIREME_TORCH)
  list(PREPEND CMAKE_MODULE_PATH "${PROJECT_SOURCE_DIR}/cmake")
  find_package(LibTorch QUIET)
  if(NOT LibTorch_FOUND)
    message(WARNING "No libtorch in ${TRIREME_TORCH_PARTS}: building without trireme-tensor.\n"
                    "Run ./trireme train once, which brings it, or give -DTRIREME_TORCH_PARTS=FOLDER, or -DTRIREME_TORCH=OFF.")
  endif()
endif()

if(TRIREME_CUDA)
  trireme_find_parts(TRIREME_GPU_PARTS gpu_parts.txt gpu-parts)
  if(NOT EXISTS "${TRIREME_GPU_PARTS}")
    execute_process(COMMAND bash "${PROJECT_SOURCE_DIR}/tools/bring_gpu_parts" "${TRIREME_GPU_PARTS}"
      COMMAND_ERROR_IS_FATAL ANY)
  endif()
  # Headers and libraries to link come from the toolkit; at run time libtorch's own copies of them serve both.
  find_package(CUDAToolkit 13 REQUIRED)
  find_path(TRIREME_NCCL_INCLUDE nccl.h PATHS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
  find_library(TRIREME_NCCL nccl PATHS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
  find_library(TRIREME_CUDNN cudnn PATHS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
  find_path(TRIREME_CUDNN_FRONTEND cudnn_frontend.h PATHS "${TRIREME_GPU_PARTS}/include" REQUIRED)
  add_library(trireme_cuda_parts INTERFACE)
  target_include_directories(trireme_cuda_parts SYSTEM INTERFACE
    "${TRIREME_NCCL_INCLUDE}" "${TRIREME_CUDNN_FRONTEND}" ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(trireme_cuda_parts INTERFACE CUDA::cudart CUDA::cublasLt "${TRIREME_CUDNN}" "${TRIREME_NCCL}")
  file(GLOB TRIREME_CUDA_DIRS "${TRIREME_TORCH_PARTS}/nvidia/*/lib")
  list(APPEND TRIREME_CUDA_DIRS "${CUDAToolkit_LIBRARY_DIR}")
endif()
