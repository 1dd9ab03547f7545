# Finds libtorch in the unpacked wheels under TRIREME_TORCH_PARTS and gives the target LibTorch::torch.
#
# The wheel's own TorchConfig.cmake demands a whole CUDA set-up even for the CPU. This one links torch_cpu and c10 and,
# with TRIREME_CUDA, torch_cuda and c10_cuda. libtorch_cpu.so needs libcudart and libcupti at run time, which other
# wheels hold: their folders go into the RPATH.
find_path(LibTorch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h
  PATHS "${TRIREME_TORCH_PARTS}/torch/include" NO_CACHE NO_DEFAULT_PATH)
foreach(name torch_cpu c10 torch_cuda c10_cuda)
  find_library(LibTorch_${name}_LIBRARY ${name} PATHS "${TRIREME_TORCH_PARTS}/torch/lib" NO_CACHE NO_DEFAULT_PATH)
endforeach()

if(EXISTS "${TRIREME_TORCH_PARTS}/torch/version.py")
  file(STRINGS "${TRIREME_TORCH_PARTS}/torch/version.py" LibTorch_VERSION REGEX "^__version__ = ")
  string(REGEX REPLACE ".*'([0-9.]+).*" "\\1" LibTorch_VERSION "${LibTorch_VERSION}")
endif()

set(LibTorch_required LibTorch_INCLUDE_DIR LibTorch_torch_cpu_LIBRARY LibTorch_c10_LIBRARY)
if(TRIREME_CUDA)
  list(APPEND LibTorch_required LibTorch_torch_cuda_LIBRARY LibTorch_c10_cuda_LIBRARY)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch REQUIRED_VARS ${LibTorch_required} VERSION_VAR LibTorch_VERSION)

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  file(GLOB LibTorch_RUNTIME_DIRS "${TRIREME_TORCH_PARTS}/nvidia/*/lib")
  list(PREPEND LibTorch_RUNTIME_DIRS "${TRIREME_TORCH_PARTS}/torch/lib")
  add_library(LibTorch::torch INTERFACE IMPORTED)
  target_include_directories(LibTorch::torch SYSTEM INTERFACE
    "${LibTorch_INCLUDE_DIR}" "${LibTorch_INCLUDE_DIR}/torch/csrc/api/include")
  target_link_libraries(LibTorch::torch INTERFACE "${LibTorch_torch_cpu_LIBRARY}" "${LibTorch_c10_LIBRARY}")
  target_link_options(LibTorch::torch INTERFACE -Wl,--allow-shlib-undefined)
  if(TRIREME_CUDA)
    # Nothing refers to torch_cuda by symbol: it registers its kernels when it is loaded.
    target_link_libraries(LibTorch::torch INTERFACE
      -Wl,--push-state,--no-as-needed "${LibTorch_torch_cuda_LIBRARY}" "${LibTorch_c10_cuda_LIBRARY}" -Wl,--pop-state)
  endif()
endif()
