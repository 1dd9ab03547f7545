#include "trireme/tensor/host_shared_tensor.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/tensor/device.h"

namespace trireme {
namespace {

DataType data_type_of(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return DataType::kFloat;
    case torch::kFloat64:
      return DataType::kDouble;
    case torch::kFloat16:
      return DataType::kHalf;
    case torch::kBFloat16:
      return DataType::kBFloat16;
    case torch::kInt32:
      return DataType::kInt32;
    case torch::kInt64:
      return DataType::kInt64;
    case torch::kUInt8:
    case torch::kBool:
      return DataType::kUInt8;
    default:
      throw UsageError(fmt::format("tensors of type {} cannot be communicated", c10::toString(type)));
  }
}

}  // namespace

torch::Tensor host_shared_zeros(Communicator* comm, int64_t count, const torch::TensorOptions& options) {
  if (comm == nullptr) return torch::zeros({count}, options);
  const bool on_gpu = options.device().is_cuda();
  const size_t num_bytes = static_cast<size_t>(count) * options.dtype().itemsize();
  Buffer buffer = on_gpu ? comm->allocate_gpu(num_bytes) : comm->allocate(num_bytes);
  if (on_gpu)
    return torch::from_blob(
               buffer.data(), {count}, [buffer](void*) {}, options)
        .zero_();
  // libtorch counts only its own allocators' memory, so report this memory.
  const auto report = [](void* memory, int64_t change) {
    c10::reportMemoryUsageToProfiler(memory, change, 0, 0, c10::Device(c10::kCPU));
  };
  report(buffer.data(), static_cast<int64_t>(num_bytes));
  return torch::from_blob(
      buffer.data(), {count}, [buffer, report](void* p) { report(p, -static_cast<int64_t>(buffer.num_bytes())); },
      options);
}

torch::Tensor without_memory(at::IntArrayRef sizes, const torch::TensorOptions& options) {
  const auto count = static_cast<size_t>(c10::multiply_integers(sizes));
  const c10::Storage storage(c10::Storage::use_byte_size_t(), count * options.dtype().itemsize(),
                             c10::DataPtr(nullptr, options.device()), nullptr, /*resizable=*/false);
  return torch::empty({0}, options).set_(storage, 0, sizes, c10::contiguous_strides(sizes));
}

Data data_of(const torch::Tensor& tensor) {
  if (!tensor.is_contiguous()) throw UsageError("only contiguous tensors can be communicated", "call contiguous()");
  if (!tensor.is_cpu() && !tensor.is_cuda()) {
    throw UsageError(fmt::format("tensors on {} cannot be communicated", tensor.device().str()), "call cpu()");
  }
  Data data(tensor.data_ptr(), static_cast<size_t>(tensor.numel()), data_type_of(tensor.scalar_type()));
  data.place = tensor.is_cuda() ? Place::kGpu : Place::kHost;
  return data;
}

CallOptions call_options(const torch::Device& device) {
  CallOptions options;
  options.stream = current_stream(device);
  return options;
}

}  // namespace trireme
