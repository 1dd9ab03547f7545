# The program `trireme`, its helper `trireme-tensor` on libtorch, which it executes from beside itself, and benchmarks.
# The target `commands` builds what commands without tensors need, `programs` what any `./trireme COMMAND` needs.
add_custom_target(commands)
add_custom_target(programs)
add_dependencies(programs commands)

# What the program measures with, apart from libtrireme, whose users need none of it.
trireme_sources(trireme_measure_sources src/trireme/measure/*.cpp)
add_library(trireme_measure STATIC ${trireme_measure_sources})
target_link_libraries(trireme_measure PUBLIC trireme trireme_inside)
trireme_compile_in_batches(trireme_measure 16)

trireme_sources(trireme_cli_sources src/trireme/cli/*.cpp)
list(FILTER trireme_cli_sources EXCLUDE REGEX "/cli/(tensor/|main\\.cpp$)")
if(CLI11_FOUND)
  add_library(trireme_cli OBJECT ${trireme_cli_sources})  # for the program and for its unit tests
  target_link_libraries(trireme_cli PUBLIC trireme_measure CLI11::CLI11)
  trireme_compile_in_batches(trireme_cli 16)
  add_executable(trireme-program src/trireme/cli/main.cpp)
  set_target_properties(trireme-program PROPERTIES OUTPUT_NAME trireme)
  target_link_libraries(trireme-program PRIVATE trireme_cli)
  file(GLOB trireme_peer_scripts CONFIGURE_DEPENDS bench/peer_*.py)  # where an installation has them
  foreach(script IN LISTS trireme_peer_scripts)
    cmake_path(GET script FILENAME name)
    file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/share/trireme")
    file(CREATE_LINK "${script}" "${PROJECT_BINARY_DIR}/share/trireme/${name}" SYMBOLIC)
  endforeach()
  add_dependencies(commands trireme-program)
endif()
if(TARGET trireme_mpi)
  add_dependencies(commands trireme_mpi)
endif()

if(LibTorch_FOUND)
  # One library for what is built on libtorch; a program alone needs none.
  trireme_sources(trireme_torch_sources src/trireme/tensor/*.cpp src/trireme/runtime/*.cpp src/trireme/parallel/*.cpp
    src/trireme/models/*.cpp src/trireme/train/*.cpp)
  if(TRIREME_CUDA)  # each X_no_cuda.cpp or no_cuda.cpp has its counterpart in a folder cuda/
    list(FILTER trireme_torch_sources EXCLUDE REGEX "no_cuda\\.cpp$")
    file(GLOB_RECURSE trireme_torch_cuda_sources CONFIGURE_DEPENDS src/trireme/models/cuda/*.cpp
      src/trireme/tensor/cuda/*.cpp src/trireme/train/cuda/*.cpp)
    list(FILTER trireme_torch_cuda_sources EXCLUDE REGEX "_(test|program)\\.cpp$")
    list(APPEND trireme_torch_sources ${trireme_torch_cuda_sources})
  endif()
  if(trireme_torch_sources)
    add_library(trireme_torch SHARED ${trireme_torch_sources})
    target_link_libraries(trireme_torch PUBLIC trireme trireme_inside PRIVATE trireme_gpu
      $<TARGET_NAME_IF_EXISTS:trireme_cuda_parts>)
    trireme_link_torch(trireme_torch)
    trireme_compile_in_batches(trireme_torch 10)
    # Without OpenMP at::parallel_for is a plain call. libtorch brings the same library for its own operators.
    set_source_files_properties(src/trireme/train/optimizer.cpp src/trireme/train/weight_update.cpp PROPERTIES
      COMPILE_OPTIONS -fopenmp SKIP_PRECOMPILE_HEADERS ON)
    target_link_libraries(trireme_torch PRIVATE gomp)
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # which does not read GCC's pragmas for instruction sets
      set_source_files_properties(src/trireme/models/kernels/avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma" SKIP_PRECOMPILE_HEADERS ON)
      set_source_files_properties(src/trireme/models/kernels/avx512.cpp PROPERTIES COMPILE_OPTIONS "-mavx512f;-mfma" SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endif()

  trireme_sources(trireme_tensor_sources src/trireme/cli/tensor/*.cpp)
  if(CLI11_FOUND)
    add_executable(trireme-tensor ${trireme_tensor_sources})
    target_link_libraries(trireme-tensor PRIVATE trireme trireme_inside trireme_gpu CLI11::CLI11
      $<TARGET_NAME_IF_EXISTS:trireme_torch>)
    trireme_link_torch(trireme-tensor)
    trireme_compile_in_batches(trireme-tensor 10)
    add_dependencies(programs trireme-tensor)
  endif()
endif()

# bench/peer_X.cpp: the same measurement on another library, which `trireme bench` starts as trireme-peer-X.
# Any other file in bench/ becomes bench_NAME.
file(GLOB trireme_bench_sources CONFIGURE_DEPENDS bench/*.cpp)
foreach(source IN LISTS trireme_bench_sources)
  cmake_path(GET source STEM name)
  trireme_uses_torch(uses_torch "${source}")
  file(STRINGS "${source}" uses_benchmark REGEX "include <benchmark/" LIMIT_COUNT 1)
  file(STRINGS "${source}" uses_gpu REGEX "^#include \"trireme/(gpu|comm/cuda|compress/cuda)/" LIMIT_COUNT 1)
  if((uses_torch AND NOT LibTorch_FOUND) OR (uses_gpu AND NOT TRIREME_CUDA) OR (uses_benchmark AND NOT TARGET benchmark::benchmark)
      OR (name STREQUAL "peer_mpi" AND NOT MPI_C_FOUND))
    continue()
  endif()
  if(name MATCHES "^peer_(.+)$")
    set(target "trireme-peer-${CMAKE_MATCH_1}")
    add_executable(${target} "${source}")
    add_dependencies(commands ${target})
  else()
    set(target "bench_${name}")
    add_executable(${target} "${source}")
    target_link_libraries(${target} PRIVATE $<TARGET_NAME_IF_EXISTS:benchmark::benchmark>)
  endif()
  target_link_libraries(${target} PRIVATE trireme trireme_inside)
  if(name STREQUAL "peer_mpi")
    trireme_link_mpi(${target})
  endif()
  if(uses_gpu)
    target_link_libraries(${target} PRIVATE trireme_gpu trireme_cuda_parts)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib;${TRIREME_CUDA_DIRS}")
  endif()
  if(uses_torch)
    target_link_libraries(${target} PRIVATE $<TARGET_NAME_IF_EXISTS:trireme_torch>)
    trireme_link_torch(${target})
  endif()
endforeach()
