// Evaluates [Note: Reduction order] over blocks that stay in the cache, with the kernels of the running processor.
#include "trireme/comm/reduce/reduce.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "trireme/comm/reduce/reduce_convert.h"
#include "trireme/comm/reduce/reduce_kernels.h"

namespace trireme {
namespace kernels {
namespace {

// Long enough to make the calls cheap, short enough for two temporaries in the first-level cache.
constexpr size_t kBlockBytes = 8192;
constexpr size_t kLineBytes = 64;

using Sources = std::span<const void* const>;

struct alignas(kLineBytes) Block {
  std::byte bytes[kBlockBytes];
};

const std::byte* address(const void* source, size_t offset) { return static_cast<const std::byte*>(source) + offset; }

bool is_fused(const Kernels::Fused& kernels, size_t n) { return n <= kMaxFused && kernels[n] != nullptr; }

/// Fills in the sources of `work` at `offset` and runs the kernel for that many.
void run_fused(const Kernels::Fused& kernels, Sources sources, size_t offset, Work work) {
  const std::byte* addresses[kMaxFused];
  for (size_t i = 0; i < sources.size(); ++i) addresses[i] = address(sources[i], offset);
  work.sources = addresses;
  kernels[sources.size()](work);
}

const std::byte* reduce_part(const Kernels::Fused& inner, Sources sources, size_t offset, size_t num_bytes,
                             Block& space);

/// Reduces one block of two or more sources into the destinations of `work`, which may be among the sources: they are
/// written by the last kernel only. `inner` are the kernels of inner nodes, `last` also closes an average.
void reduce_block(const Kernels::Fused& inner, const Kernels::Fused& last, Sources sources, size_t offset, Work work) {
  if (is_fused(last, sources.size())) return run_fused(last, sources, offset, work);
  const size_t split = tree_split(sources.size());
  Block left, right;
  const std::byte* parts[] = {reduce_part(inner, sources.first(split), offset, work.num_bytes, left),
                              reduce_part(inner, sources.subspan(split), offset, work.num_bytes, right)};
  work.sources = parts;
  last[2](work);
}

/// Where the reduced block is: `space`, or the source itself where there is only one.
const std::byte* reduce_part(const Kernels::Fused& inner, Sources sources, size_t offset, size_t num_bytes,
                             Block& space) {
  if (sources.size() == 1) return address(sources[0], offset);
  std::byte* const out = space.bytes;
  Work work{nullptr, &out, 1, 0, num_bytes, 1, false};
  if (is_fused(inner, sources.size())) {
    run_fused(inner, sources, offset, work);
    return out;
  }
  const size_t split = tree_split(sources.size());
  Block right;
  const std::byte* parts[] = {reduce_part(inner, sources.first(split), offset, num_bytes, space),
                              reduce_part(inner, sources.subspan(split), offset, num_bytes, right)};
  work.sources = parts;
  inner[2](work);
  return out;
}

/// More sources than any kernel takes.
__attribute__((noinline)) void reduce_blocks(const Kernels& kernels, ReduceOp op, DataType type, Sources sources,
                                             Work work) {
  const Kernels::Fused& last = kernels.of(op, type);
  const Kernels::Fused& inner = kernels.of(op == ReduceOp::kAverage ? ReduceOp::kSum : op, type);
  const size_t num_bytes = work.num_bytes;
  // A shorter first block lets all others start on a cache line of the first destination.
  const size_t skew = reinterpret_cast<uintptr_t>(work.destinations[0]) % kLineBytes;
  size_t block_bytes = kBlockBytes - (skew % size_of(type) == 0 ? skew : 0);
  for (size_t offset = 0; offset < num_bytes; offset += block_bytes, block_bytes = kBlockBytes) {
    work.destination_offset = offset;
    work.num_bytes = block_bytes = std::min(block_bytes, num_bytes - offset);
    reduce_block(inner, last, sources, offset, work);
  }
}

/// size_of without the call.
size_t to_bytes(size_t count, DataType type) {
  constexpr uint8_t kShift[] = {2, 3, 1, 1, 2, 3, 0};
  return count << kShift[static_cast<size_t>(type)];
}

const Kernels& fastest() {
  static const Kernels& kernels = avx512() != nullptr ? *avx512() : avx2() != nullptr ? *avx2() : *portable();
  return kernels;
}

}  // namespace

std::vector<const Kernels*> available() {
  std::vector<const Kernels*> all = {avx512(), avx2(), portable()};
  std::erase(all, nullptr);
  return all;
}

void reduce_tree(const Kernels& kernels, ReduceOp op, DataType type, std::span<const void* const> sources,
                 std::span<void* const> destinations, size_t count, size_t divisor, Stores stores) {
  assert(!sources.empty());
  if (count == 0 || destinations.empty()) return;
  if (op == ReduceOp::kAverage && divisor == 1) op = ReduceOp::kSum;
  const Work work{reinterpret_cast<const std::byte* const*>(sources.data()),
                  reinterpret_cast<std::byte* const*>(destinations.data()),
                  destinations.size(),
                  0,
                  to_bytes(count, type),
                  divisor,
                  stores == Stores::kStreaming};
  const Kernels::Fused& fused = kernels.of(op, type);
  if (is_fused(fused, sources.size())) {
    fused[sources.size()](work);
  } else if (sources.size() == 1) {
    kernels.copy(work);
  } else {
    reduce_blocks(kernels, op, type, sources, work);
  }
  if (stores == Stores::kStreaming) kernels.fence();
}

void copy_bytes(const Kernels& kernels, void* out, const void* in, size_t num_bytes, Stores stores) {
  if (num_bytes == 0) return;
  // The C library's copy turns to string instructions from a few KiB on, which are slow where another core holds the
  // lines that are written.
  const auto* source = static_cast<const std::byte*>(in);
  auto* const destination = static_cast<std::byte*>(out);
  const bool streaming = stores == Stores::kStreaming;
  kernels.copy({&source, &destination, 1, 0, num_bytes, 1, streaming});
  if (streaming) kernels.fence();
}

}  // namespace kernels

size_t tree_split(size_t n) {
  assert(n >= 2);
  return std::bit_ceil(n) / 2;
}

void combine(ReduceOp op, DataType type, void* out, const void* a, const void* b, size_t count) {
  const std::byte* const sources[] = {static_cast<const std::byte*>(a), static_cast<const std::byte*>(b)};
  auto* const destination = static_cast<std::byte*>(out);
  if (op == ReduceOp::kAverage) op = ReduceOp::kSum;
  kernels::fastest().of(op, type)[2]({sources, &destination, 1, 0, kernels::to_bytes(count, type), 1, false});
}

void reduce_tree(ReduceOp op, DataType type, std::span<const void* const> sources, std::span<void* const> destinations,
                 size_t count, size_t divisor, Stores stores) {
  kernels::reduce_tree(kernels::fastest(), op, type, sources, destinations, count, divisor, stores);
}

void finish(ReduceOp op, DataType type, void* data, size_t count, size_t divisor) {
  if (op != ReduceOp::kAverage || divisor == 1) return;
  const auto* source = static_cast<const std::byte*>(data);
  auto* const destination = static_cast<std::byte*>(data);
  kernels::fastest().of(op, type)[1]({&source, &destination, 1, 0, kernels::to_bytes(count, type), divisor, false});
}

void copy_bytes(void* out, const void* in, size_t num_bytes, Stores stores) {
  kernels::copy_bytes(kernels::fastest(), out, in, num_bytes, stores);
}

float to_float(Half value) { return kernels::float_of(value); }
float to_float(BFloat16 value) { return kernels::float_of(value); }
Half to_half(float value) { return kernels::half_of(value); }
BFloat16 to_bfloat16(float value) { return kernels::bfloat16_of(value); }

}  // namespace trireme
