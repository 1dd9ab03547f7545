// How fast one core reduces: GB/s of result, for each instruction set of this machine, in the caches and beyond them.
//
//   bench_reduce --benchmark_filter=float/2to2
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "trireme/comm/reduce/reduce_kernels.h"

namespace trireme {
namespace {

constexpr size_t kLargest = size_t{64} << 20;

struct Shape {
  ReduceOp op;
  DataType type;
  size_t num_sources, num_destinations;
};

constexpr Shape kShapes[] = {
    {ReduceOp::kSum, DataType::kFloat, 2, 1}, {ReduceOp::kSum, DataType::kFloat, 2, 2},
    {ReduceOp::kSum, DataType::kFloat, 4, 2}, {ReduceOp::kSum, DataType::kFloat, 7, 2},
    {ReduceOp::kSum, DataType::kFloat, 8, 2}, {ReduceOp::kAverage, DataType::kFloat, 2, 2},
    {ReduceOp::kMax, DataType::kFloat, 2, 2}, {ReduceOp::kSum, DataType::kDouble, 2, 2},
    {ReduceOp::kSum, DataType::kHalf, 2, 2},  {ReduceOp::kSum, DataType::kBFloat16, 2, 2},
    {ReduceOp::kSum, DataType::kInt32, 2, 2},
};

/// Buffers that start on pages, a few lines apart from each other's place in a page, as unrelated buffers do.
std::byte* buffer(size_t index) {
  static std::vector<std::vector<std::byte>> buffers(12);
  auto& bytes = buffers[index];
  if (bytes.empty()) bytes.resize(kLargest + 8192);
  return bytes.data() + -reinterpret_cast<uintptr_t>(bytes.data()) % 4096 + index * 256;
}

void reduce(benchmark::State& state, const kernels::Kernels& table, const Shape& shape) {
  const auto num_bytes = static_cast<size_t>(state.range(0));
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  for (size_t s = 0; s < shape.num_sources; ++s) sources.push_back(buffer(s));
  for (size_t d = 0; d < shape.num_destinations; ++d) destinations.push_back(buffer(8 + d));
  const Stores stores = num_bytes == kLargest ? Stores::kStreaming : Stores::kCached;
  const size_t count = num_bytes / size_of(shape.type);
  for (auto _ : state) {
    kernels::reduce_tree(table, shape.op, shape.type, sources, destinations, count, 3, stores);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(num_bytes));
}

void copy(benchmark::State& state, const kernels::Kernels& table, Stores stores) {
  const auto num_bytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) kernels::copy_bytes(table, buffer(8), buffer(0), num_bytes, stores);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(num_bytes));
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  benchmark::Initialize(&argc, argv);
  for (const kernels::Kernels* table : kernels::available()) {
    for (const Shape& shape : kShapes) {
      const std::string name = std::string(table->name) + "/" + std::string(name_of(shape.op)) + "/" +
                               std::string(name_of(shape.type)) + "/" + std::to_string(shape.num_sources) + "to" +
                               std::to_string(shape.num_destinations);
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { reduce(state, *table, shape); })
          ->Arg(1024)
          ->Arg(2048)
          ->Arg(32 << 10)
          ->Arg(512 << 10)
          ->Arg(kLargest);
    }
    for (Stores stores : {Stores::kCached, Stores::kStreaming}) {
      const std::string name =
          std::string(table->name) + (stores == Stores::kStreaming ? "/copy/streaming" : "/copy/cached");
      benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
        copy(state, *table, stores);
      })->Arg(kLargest);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
}
