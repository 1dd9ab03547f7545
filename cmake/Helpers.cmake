# Short functions that the other files share.

# Folders whose sources make libtrireme: no libtorch in them (tools/layers.txt, checked by tools/check_layers).
set(TRIREME_PURE_FOLDERS base mesh config data observe layout program shape simulate plan comm compress checkpoint launch optimizer server)

# Sources under the given patterns, without tests, helper programs and code for optional parts.
function(trireme_sources result)
  file(GLOB_RECURSE found CONFIGURE_DEPENDS ${ARGN})
  list(FILTER found EXCLUDE REGEX "_(test|program)\\.cpp$|/(mpi|cuda)/")
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# True when one of the files includes libtorch, or a folder of ours that is built on it.
function(trireme_uses_torch result)
  set(${result} FALSE PARENT_SCOPE)
  foreach(file IN LISTS ARGN)
    file(STRINGS "${file}" lines
      REGEX "^#include [<\"]((torch|ATen|c10|trireme/(train|models|parallel|runtime|tensor))/|trireme/torch\\.h)")
    if(lines)
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# What every target of this repository sees: the headers, and the libraries that libtrireme keeps to itself.
add_library(trireme_inside INTERFACE)
target_include_directories(trireme_inside INTERFACE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_BINARY_DIR}/include")
target_link_libraries(trireme_inside INTERFACE Threads::Threads fmt::fmt nlohmann_json::nlohmann_json)

# Links MPI, by its C interface.
function(trireme_link_mpi target)
  target_link_libraries(${target} PRIVATE MPI::MPI_C)
  target_compile_definitions(${target} PRIVATE OMPI_SKIP_MPICXX)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
endfunction()

# A compiler that reads torch/torch.h takes up to 3 GB: as many at a time as the memory holds.
cmake_host_system_information(RESULT trireme_memory_mb QUERY TOTAL_PHYSICAL_MEMORY)
math(EXPR trireme_torch_jobs "${trireme_memory_mb} / 3000")
if(trireme_torch_jobs LESS 1)
  set(trireme_torch_jobs 1)
endif()
set_property(GLOBAL PROPERTY JOB_POOLS torch=${trireme_torch_jobs})

# Links libtorch, and makes the target find it at run time.
function(trireme_link_torch target)
  target_link_libraries(${target} PRIVATE LibTorch::torch)
  # libtorch's headers bring an fmt of their own, of another version than the system's library.
  target_compile_definitions(${target} PRIVATE FMT_HEADER_ONLY)
  # One precompiled torch/torch.h for all: libraries and programs must then be compiled alike.
  set_target_properties(${target} PROPERTIES DEFINE_SYMBOL "")
  target_compile_options(${target} PRIVATE -fPIC
    $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)  # libtorch's macros keep names of source files
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 18)
    target_compile_options(${target} PRIVATE -fclang-abi-compat=17)  # libtorch has the names that GCC gives to templates
  endif()
  if(target STREQUAL "trireme_torch")
    target_precompile_headers(${target} PRIVATE <torch/torch.h>)
  else()
    target_precompile_headers(${target} REUSE_FROM trireme_torch)
  endif()
  set_target_properties(${target} PROPERTIES
    INSTALL_RPATH "$ORIGIN/../lib;${LibTorch_RUNTIME_DIRS}" JOB_POOL_COMPILE torch)
endfunction()

# How many files of a folder one compiler reads at a time. One of them reads the headers for all, so a build from nothing
# takes a fifth of the time that single files take; 1 gives single files.
set(TRIREME_BATCH 16 CACHE STRING "Files of a folder that are compiled together; 1 compiles each alone")

# Compiles the target's sources in batches of one folder each. Files with options of their own stay alone, and so do
# kernels that are compiled once per instruction set.
function(trireme_compile_in_batches target most)
  if(TRIREME_BATCH LESS most)
    set(most ${TRIREME_BATCH})
  endif()
  if(most LESS 2)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(SORT sources)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.cpp$" OR source MATCHES "/kernels(/|_|\\.cpp)|/[a-z_]*(avx2|avx512|portable)\\.cpp$")
      continue()
    endif()
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/src/trireme")
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    list(APPEND files_of_${folder} "${source}")
    list(APPEND folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    # Batches of equal length: 17 files are 9 and 8, not 16 and 1.
    list(LENGTH files_of_${folder} count)
    math(EXPR batches "(${count} + ${most} - 1) / ${most}")
    set(index 0)
    foreach(source IN LISTS files_of_${folder})
      math(EXPR batch "${index} * ${batches} / ${count}")
      set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${folder}_${batch}")
      math(EXPR index "${index} + 1")
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # which takes the files of a batch for headers, and sees less far in long ones
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage;-Wno-maybe-uninitialized>")
  endif()
endfunction()
