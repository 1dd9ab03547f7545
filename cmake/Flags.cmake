# How every target is compiled and linked.

# Another compiler warns about other things, which must not end a user's build; developers and CI want to know.
if(DEFINED ENV{CI})
  set(TRIREME_WERROR ON)
else()
  option(TRIREME_WERROR "Warnings are errors" OFF)
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG -g0")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

# The build folder is laid out as an installation is, so programs find the library by one path in both.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/../lib")

# Contracted multiply-adds would make the bits of a sum depend on the compiler's mood.
add_compile_options(
  $<$<COMPILE_LANGUAGE:CXX>:-Wall>
  $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${TRIREME_WERROR}>>:-Werror>
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)  # GCC bug 105651: "text" + std::string() warns
endif()

if(TRIREME_SANITIZE STREQUAL "address")
  # Null pointers end in AddressSanitizer anyway, and x86 and ARM read unaligned; checks for them take half of the compile
  # time.
  set(trireme_sanitizers -fsanitize=address,undefined -fno-sanitize=null,vptr,alignment -fno-sanitize-recover=all)
elseif(TRIREME_SANITIZE STREQUAL "thread")
  set(trireme_sanitizers -fsanitize=thread)
elseif(TRIREME_SANITIZE)
  message(FATAL_ERROR "TRIREME_SANITIZE=${TRIREME_SANITIZE}: give address, thread or nothing")
endif()
if(TRIREME_SANITIZE)
  set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
  # Instrumented code hides initialisations from GCC; -Wtsan only says that fences are not followed.
  add_compile_options(${trireme_sanitizers} -fno-omit-frame-pointer -Wno-maybe-uninitialized -Wno-tsan)
  add_link_options(${trireme_sanitizers})
endif()

include(CheckLinkerFlag)
foreach(linker mold lld)
  check_linker_flag(CXX "-fuse-ld=${linker}" TRIREME_LINKER_${linker})
  if(TRIREME_LINKER_${linker})
    add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=${linker}>)
    break()
  endif()
endforeach()

find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE)
  # Without the first it would not cache what uses a precompiled header; with the others a clone elsewhere finds what
  # this one has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 "${TRIREME_CCACHE}")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${TRIREME_CCACHE}")
endif()

if(TRIREME_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know that nvcc has C++20
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  # Sums keep their order and rounding, as on the CPU; what may contract says so itself.
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
  if(TRIREME_WERROR)
    add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
endif()
