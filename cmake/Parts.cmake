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
    message(WARNING "No libtorch in ${TRIREME_PARTS}: building without trireme-tensor.\n"
                    "Run ./trireme --help once, which brings it, or give -DTRIREME_PARTS=FOLDER, or -DTRIREME_TORCH=OFF.")
  endif()
endif()

if(TRIREME_CUDA)
  file(SHA256 "${PROJECT_SOURCE_DIR}/cmake/gpu_parts.txt" trireme_gpu_parts_hash)
  string(SUBSTRING "${trireme_gpu_parts_hash}" 0 12 trireme_gpu_parts_hash)
  if(NOT TRIREME_GPU_PARTS)
    set(TRIREME_GPU_PARTS "${trireme_cache}/gpu-parts-${trireme_gpu_parts_hash}")
  endif()
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
  file(GLOB TRIREME_CUDA_DIRS "${TRIREME_PARTS}/nvidia/*/lib")
  list(APPEND TRIREME_CUDA_DIRS "${CUDAToolkit_LIBRARY_DIR}")
endif()
