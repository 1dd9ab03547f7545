#include "trireme/comm/cuda/ipc_memory.h"

#include <cuda.h>

#include "trireme/base/error.h"
#include "trireme/gpu/types.h"

namespace trireme {
namespace {

/// A function of the driver, which this library does not link: a build must start where there is none.
template <typename Function>
Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  gpu::check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result), name);
  if (result != cudaDriverEntryPointSuccess || function == nullptr)
    throw Error(std::string("the NVIDIA driver has no ") + name, "install a driver for CUDA 12 or later");
  return reinterpret_cast<Function>(function);
}

}  // namespace

IpcMemory::IpcMemory(int num_members)
    : get_range_(driver_function<decltype(get_range_)>("cuMemGetAddressRange")),
      get_attribute_(driver_function<decltype(get_attribute_)>("cuPointerGetAttribute")),
      opened_(static_cast<size_t>(num_members)) {}

std::optional<ShownMemory> IpcMemory::show(const void* data, size_t num_bytes) {
  const auto address = reinterpret_cast<unsigned long long>(data);
  unsigned long long base = 0, allocation = 0;
  size_t size = 0;
  if (get_range_(&base, &size, address) != CUDA_SUCCESS || address + num_bytes > base + size) return std::nullopt;
  if (get_attribute_(&allocation, CU_POINTER_ATTRIBUTE_BUFFER_ID, base) != CUDA_SUCCESS) return std::nullopt;
  ShownMemory& known = shown_[base];
  if (known.allocation != allocation) {
    if (cudaIpcGetMemHandle(&known.handle, reinterpret_cast<void*>(base)) != cudaSuccess) {
      cudaGetLastError();
      shown_.erase(base);
      return std::nullopt;
    }
    known.allocation = allocation;
    known.base = base;
  }
  ShownMemory shown = known;
  shown.offset = address - base;
  return shown;
}

std::byte* IpcMemory::open(int member, const ShownMemory& shown) {
  Opened& opened = opened_[static_cast<size_t>(member)][shown.base];
  if (opened.allocation != shown.allocation) {
    if (opened.memory != nullptr) gpu::check(cudaIpcCloseMemHandle(opened.memory), "cudaIpcCloseMemHandle");
    opened = {};
    gpu::check(cudaIpcOpenMemHandle(&opened.memory, shown.handle, cudaIpcMemLazyEnablePeerAccess),
               "cudaIpcOpenMemHandle of a peer's memory");
    opened.allocation = shown.allocation;
  }
  return static_cast<std::byte*>(opened.memory) + shown.offset;
}

void IpcMemory::close() noexcept {
  for (auto& of_member : opened_) {
    for (auto& [base, opened] : of_member) {
      if (opened.memory != nullptr) cudaIpcCloseMemHandle(opened.memory);
    }
    of_member.clear();
  }
}

}  // namespace trireme
