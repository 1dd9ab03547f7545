# libtrireme, which never links libtorch, and the MPI transport, which it opens at run time from its own folder.
set(trireme_patterns ${TRIREME_PURE_FOLDERS})
list(TRANSFORM trireme_patterns REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/src/trireme/\\1/*.cpp")
trireme_sources(trireme_library_sources ${trireme_patterns})

if(TRIREME_HIGHS)
  list(FILTER trireme_library_sources EXCLUDE REGEX "/plan/no_highs\\.cpp$")
  set_source_files_properties(src/trireme/plan/highs.cpp PROPERTIES
    COMPILE_DEFINITIONS "TRIREME_HIGHS_LIBRARY=\"${TRIREME_HIGHS}/lib/libhighs.so\""
    COMPILE_OPTIONS "-isystem;${TRIREME_HIGHS}/include/highs;-isystem;${TRIREME_HIGHS}/include")
else()
  list(FILTER trireme_library_sources EXCLUDE REGEX "/plan/highs\\.cpp$")
endif()

add_library(trireme SHARED ${trireme_library_sources})
add_library(Trireme::trireme ALIAS trireme)
trireme_compile_in_batches(trireme 16)
target_include_directories(trireme PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
  $<INSTALL_INTERFACE:include>)
target_compile_features(trireme PUBLIC cxx_std_20)
target_link_libraries(trireme PUBLIC Threads::Threads PRIVATE $<BUILD_INTERFACE:trireme_inside>)
# A square root that need not set errno is one instruction, so that its loop becomes a vector loop: the same bits.
set_source_files_properties(src/trireme/optimizer/kernels.cpp PROPERTIES
  COMPILE_OPTIONS "-fno-math-errno;-fno-trapping-math")

file(GLOB trireme_mpi_sources CONFIGURE_DEPENDS src/trireme/comm/mpi/*.cpp)
list(FILTER trireme_mpi_sources EXCLUDE REGEX "_(test|program)\\.cpp$")
if(MPI_C_FOUND AND trireme_mpi_sources)
  add_library(trireme_mpi MODULE ${trireme_mpi_sources})
  target_link_libraries(trireme_mpi PRIVATE trireme trireme_inside)
  trireme_link_mpi(trireme_mpi)
endif()

# Everything for GPUs that needs no libtorch: kernels, matrix products, communicators. A CPU build has only the answer
# that there is no GPU.
file(GLOB_RECURSE trireme_gpu_sources CONFIGURE_DEPENDS src/trireme/gpu/*.cpp src/trireme/gpu/*.cu
  src/trireme/comm/cuda/*.cpp src/trireme/comm/cuda/*.cu
  src/trireme/compress/cuda/*.cpp src/trireme/compress/cuda/*.cu)
list(FILTER trireme_gpu_sources EXCLUDE REGEX "_(test|program)\\.cpp$|/no_cuda\\.cpp$")
if(TRIREME_CUDA)
  add_library(trireme_gpu SHARED ${trireme_gpu_sources})
  target_link_libraries(trireme_gpu PUBLIC trireme trireme_inside PRIVATE trireme_cuda_parts)
  # Its coding of elements is the host's, by functions that are constexpr.
  set_source_files_properties(src/trireme/compress/cuda/block_kernels.cu PROPERTIES
    COMPILE_OPTIONS --expt-relaxed-constexpr)
  set_target_properties(trireme_gpu PROPERTIES INSTALL_RPATH "$ORIGIN;${TRIREME_CUDA_DIRS}")
else()
  add_library(trireme_gpu STATIC src/trireme/gpu/no_cuda.cpp)
  target_link_libraries(trireme_gpu PUBLIC trireme trireme_inside)
endif()
