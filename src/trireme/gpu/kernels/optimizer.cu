// Cuts parameters into blocks.
#include <algorithm>
#include <memory>

#include "trireme/gpu/kernels/launch.cuh"
#include "trireme/gpu/kernels/optimizer.h"
#include "trireme/gpu/kernels/optimizer_blocks.cuh"

namespace trireme::gpu {
namespace {

struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
template <typename T>
using OnDevice = std::unique_ptr<T, Free>;

template <typename T>
OnDevice<T> allocate(size_t count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, std::max<size_t>(count, 1) * sizeof(T)), "cudaMalloc for the table of parameters");
  return OnDevice<T>(static_cast<T*>(memory));
}

template <typename T>
OnDevice<T> on_device(const std::vector<T>& values) {
  auto memory = allocate<T>(values.size());
  check(cudaMemcpy(memory.get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  return memory;
}

bool can_be_moved_by_four(const ParameterSpan& span, Type gradient_type, Type compute_type) {
  const auto fits = [](const void* pointer, size_t bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % (4 * bytes) == 0;
  };
  return fits(span.master, 4) && fits(span.first, 4) && fits(span.second, 4) &&
         fits(span.gradient, size_of(gradient_type)) && fits(span.second_gradient, size_of(gradient_type)) &&
         fits(span.compute, size_of(compute_type));
}

template <typename T>
T* moved(T* pointer, int64_t elements) {
  return pointer ? pointer + elements : nullptr;
}
void* moved(void* pointer, int64_t elements, Type type) {
  return moved(static_cast<char*>(pointer), elements * static_cast<int64_t>(size_of(type)));
}
const void* moved(const void* pointer, int64_t elements, Type type) {
  return moved(static_cast<const char*>(pointer), elements * static_cast<int64_t>(size_of(type)));
}

}  // namespace

struct ParameterBlocks::Inside {
  Type gradient_type, compute_type;
  OnDevice<Block> blocks;
  OnDevice<Chunk> chunks;
  OnDevice<ChunkRange> parameters;
  OnDevice<double> block_sums, chunk_sums;
  NormTable table{};
};

ParameterBlocks::ParameterBlocks(const std::vector<ParameterSpan>& spans, Type gradient_type, Type compute_type) {
  std::vector<Block> blocks;
  std::vector<Chunk> chunks;
  std::vector<ChunkRange> parameters;
  for (const ParameterSpan& span : spans) {
    const auto first_block = static_cast<int64_t>(blocks.size());
    const bool aligned = can_be_moved_by_four(span, gradient_type, compute_type);
    for (int64_t at = 0; at < span.count; at += kBlockElements) {
      blocks.push_back(
          {moved(span.master, at), moved(span.compute, at, compute_type), moved(span.gradient, at, gradient_type),
           moved(span.second_gradient, at, gradient_type), moved(span.first, at), moved(span.second, at),
           static_cast<int32_t>(std::min<int64_t>(kBlockElements, span.count - at)), span.decays, aligned});
    }
    const auto last_block = static_cast<int64_t>(blocks.size());
    const auto first_chunk = static_cast<int32_t>(chunks.size());
    for (int64_t at = first_block; at < last_block; at += kLeaves) {
      chunks.push_back({at, static_cast<int32_t>(std::min<int64_t>(kLeaves, last_block - at))});
    }
    if (span.count > 0) parameters.push_back({first_chunk, static_cast<int32_t>(chunks.size()) - first_chunk});
  }
  auto inside = std::make_unique<Inside>();
  inside->gradient_type = gradient_type;
  inside->compute_type = compute_type;
  inside->blocks = on_device(blocks);
  inside->chunks = on_device(chunks);
  inside->parameters = on_device(parameters);
  inside->block_sums = allocate<double>(blocks.size());
  inside->chunk_sums = allocate<double>(chunks.size());
  inside->table = {inside->blocks.get(),     static_cast<int64_t>(blocks.size()),
                   inside->chunks.get(),     static_cast<int32_t>(chunks.size()),
                   inside->parameters.get(), static_cast<int32_t>(parameters.size()),
                   inside->block_sums.get(), inside->chunk_sums.get()};
  // What was copied must be there for every stream, also those that do not wait for the default one.
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  inside_ = inside.release();
}

ParameterBlocks::~ParameterBlocks() { delete inside_; }

int64_t ParameterBlocks::num_blocks() const { return inside_->table.num_blocks; }

void ParameterBlocks::block_squares(double* host, Stream stream) {
  if (inside_->table.num_blocks == 0) return;
  launch_block_sums(inside_->table, inside_->gradient_type, stream);
  check(
      cudaMemcpyAsync(host, inside_->table.block_sums, static_cast<size_t>(inside_->table.num_blocks) * sizeof(double),
                      cudaMemcpyDeviceToHost, stream),
      "cudaMemcpyAsync of the squares of gradients");
}

void ParameterBlocks::gradient_norm(StepValues* values, Stream stream) {
  launch_gradient_norm(inside_->table, inside_->gradient_type, values, stream);
}

void ParameterBlocks::update(const OptimizerSettings& settings, const StepValues* values, Stream stream) {
  if (inside_->table.num_blocks == 0) return;
  launch_update(inside_->table.blocks, inside_->table.num_blocks, inside_->gradient_type, inside_->compute_type,
                settings, values, stream);
}

}  // namespace trireme::gpu
