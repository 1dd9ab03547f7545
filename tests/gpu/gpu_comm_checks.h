// Every operation on GPU memory, compared byte for byte with the same operation on host memory.
#pragma once

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/comm/cuda/spin.h"
#include "trireme/comm/reduce/reduce.h"

namespace trireme {

struct GpuCheckOptions {
  std::vector<size_t> counts{0, 1, 7, 64, 1000, 5003, 70001};
  bool all_types = true;
};

using Host = std::vector<std::byte>;

inline const std::vector<DataType>& checked_types(bool all) {
  static const std::vector<DataType> every{DataType::kFloat, DataType::kDouble, DataType::kHalf, DataType::kBFloat16,
                                           DataType::kInt32, DataType::kInt64,  DataType::kUInt8};
  static const std::vector<DataType> some{DataType::kFloat, DataType::kBFloat16};
  return all ? every : some;
}

/// Values of magnitude 0.5 to 2: products stay finite, and sums show the order of their additions.
inline void fill(Data data, uint64_t seed) {
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 12345;
  for (size_t i = 0; i < data.count; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto bits = static_cast<uint32_t>(state >> 33);
    const float value =
        (0.5f + 1.5f * static_cast<float>(bits >> 8) / static_cast<float>(1 << 23)) * (bits & 1 ? -1 : 1);
    switch (data.type) {
      case DataType::kFloat:
        reinterpret_cast<float*>(data.bytes)[i] = value;
        break;
      case DataType::kDouble:
        reinterpret_cast<double*>(data.bytes)[i] = value * 1.000001;
        break;
      case DataType::kHalf:
        reinterpret_cast<Half*>(data.bytes)[i] = to_half(value);
        break;
      case DataType::kBFloat16:
        reinterpret_cast<BFloat16*>(data.bytes)[i] = to_bfloat16(value);
        break;
      case DataType::kInt32:
        reinterpret_cast<int32_t*>(data.bytes)[i] = static_cast<int32_t>(value * 1e6f);
        break;
      case DataType::kInt64:
        reinterpret_cast<int64_t*>(data.bytes)[i] = static_cast<int64_t>(value * 1e9f);
        break;
      case DataType::kUInt8:
        reinterpret_cast<uint8_t*>(data.bytes)[i] = static_cast<uint8_t>(bits);
        break;
    }
  }
}

inline void expect_same(const std::string& what, int rank, const Host& wanted, const Host& got, DataType type) {
  if (wanted == got) return;
  size_t different = 0, first = 0;
  for (size_t i = wanted.size(); i-- > 0;) {
    if (wanted[i] == got[i]) continue;
    ++different;
    first = i;
  }
  const size_t width = size_of(type), element = first / width;
  std::string words[2];
  for (int side = 0; side < 2; ++side) {
    for (size_t b = 0; b < width; ++b)
      words[side] = fmt::format("{:02x}", static_cast<int>((side ? got : wanted)[element * width + b])) + words[side];
  }
  throw Error(fmt::format("{}: rank {} has {} wrong bytes of {}; the first in element {}: {} instead of {}", what, rank,
                          different, wanted.size(), element, words[1], words[0]));
}

/// Two large pieces of GPU memory, and operands in them with guards around.
class GpuArena {
 public:
  GpuArena(Communicator& comm, size_t num_bytes)
      : in_(comm.allocate_gpu(num_bytes)), out_(comm.allocate_gpu(num_bytes)) {
    gpu::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  ~GpuArena() { cudaStreamDestroy(stream_); }
  GpuArena(const GpuArena&) = delete;
  cudaStream_t stream() const { return stream_; }

  ConstData in(const Host& data, DataType type, size_t skew = 0) {
    return upload(static_cast<std::byte*>(in_.data()) + kGuard + skew, data, type);
  }
  /// Poisoned, unless it has contents.
  Data out(const Host& data, DataType type, size_t skew = 0) {
    std::byte* at = static_cast<std::byte*>(out_.data()) + kGuard + skew;
    gpu::check(cudaMemsetAsync(at - kGuard, 0xA5, data.size() + 2 * kGuard, stream_), "cudaMemsetAsync");
    return upload(at, data, type);
  }
  Host result(Data data, const std::string& what) {
    Host all(data.num_bytes() + 2 * kGuard);
    gpu::check(cudaMemcpyAsync(all.data(), data.bytes - kGuard, all.size(), cudaMemcpyDeviceToHost, stream_), "copy");
    gpu::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    for (size_t i = 0; i < kGuard; ++i) {
      if (all[i] != std::byte{0xA5} || all[all.size() - 1 - i] != std::byte{0xA5})
        throw Error(what + ": wrote outside its output");
    }
    return {all.begin() + kGuard, all.end() - kGuard};
  }

  static constexpr size_t kGuard = 128;

 private:
  Data upload(std::byte* at, const Host& data, DataType type) {
    gpu::check(cudaMemcpyAsync(at, data.data(), data.size(), cudaMemcpyHostToDevice, stream_), "copy");
    return {at, data.size() / size_of(type), type, Place::kGpu};
  }

  Buffer in_, out_;
  cudaStream_t stream_ = nullptr;
};

inline Host random_bytes(size_t count, DataType type, uint64_t seed) {
  Host data(count * size_of(type));
  fill(Data(data.data(), count, type), seed);
  return data;
}

inline Data view(Host& data, DataType type) { return {data.data(), data.size() / size_of(type), type}; }

/// One case: `run(in, out, options)` on the host and on the GPU, with the same input and the same poison.
inline void compare(Communicator& comm, GpuArena& arena, const std::string& what, DataType type, size_t in_count,
                    size_t out_count, uint64_t seed,
                    const std::function<void(ConstData, Data, const CallOptions&)>& run, size_t skew = 0) {
  const std::string name = fmt::format("{} of {} {}", what, in_count, name_of(type));
  Host in = random_bytes(in_count, type, seed * 1000 + static_cast<uint64_t>(comm.rank()));
  Host wanted(out_count * size_of(type), std::byte{0xFF});
  CallOptions options;
  options.stream = arena.stream();
  const ConstData gpu_in = arena.in(in, type, skew);
  const Data gpu_out = arena.out(wanted, type, skew);
  run(view(in, type), view(wanted, type), {});
  run(gpu_in, gpu_out, options);
  expect_same(name, comm.rank(), wanted, arena.result(gpu_out, name), type);
}

inline int check_gpu_reductions(Communicator& comm, GpuArena& arena, const GpuCheckOptions& options) {
  const size_t p = static_cast<size_t>(comm.size());
  int cases = 0;
  uint64_t seed = 1;
  for (const DataType type : checked_types(options.all_types)) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      for (const size_t n : options.counts) {
        const int root = static_cast<int>(seed % p);
        const std::string with = std::string(" by ") + std::string(name_of(op));
        ++seed;
        {
          const std::string name = fmt::format("all-reduce{} of {} {}", with, n, name_of(type));
          Host wanted = random_bytes(n, type, seed * 1000 + static_cast<uint64_t>(comm.rank()));
          const Data data = arena.out(wanted, type);
          comm.all_reduce(view(wanted, type), op);
          CallOptions call;
          call.stream = arena.stream();
          comm.all_reduce(data, op, call);
          expect_same(name, comm.rank(), wanted, arena.result(data, name), type);
        }
        compare(comm, arena, "reduce" + with, type, n, n, seed,
                [&](ConstData in, Data out, const CallOptions& call) { comm.reduce(in, out, op, root, call); });
        compare(comm, arena, "reduce-scatter" + with, type, n * p, n, seed,
                [&](ConstData in, Data out, const CallOptions& call) { comm.reduce_scatter(in, out, op, call); });
        std::vector<size_t> counts;
        for (size_t r = 0; r < p; ++r) counts.push_back(n / (r + 1) + r);
        const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
        compare(comm, arena, "reduce-scatter of unequal sizes" + with, type, total,
                counts[static_cast<size_t>(comm.rank())], seed, [&](ConstData in, Data out, const CallOptions& call) {
                  comm.reduce_scatter_v(in, out, counts, op, call);
                });
        cases += 4;
      }
    }
  }
  return cases;
}

inline int check_gpu_copies(Communicator& comm, GpuArena& arena, const GpuCheckOptions& options) {
  const size_t p = static_cast<size_t>(comm.size()), me = static_cast<size_t>(comm.rank());
  int cases = 0;
  uint64_t seed = 500;
  for (const DataType type : checked_types(options.all_types)) {
    for (const size_t n : options.counts) {
      const int root = static_cast<int>(++seed % p);
      const size_t skew = seed % 3 * size_of(type);
      const auto test = [&](const char* what, size_t in, size_t out, auto run) {
        compare(comm, arena, what, type, in, out, seed, run, skew);
        ++cases;
      };
      test("broadcast", n, n, [&](ConstData in, Data out, const CallOptions& call) {
        if (comm.rank() != root) return comm.broadcast(out, root, call);
        comm.broadcast({const_cast<std::byte*>(in.bytes), in.count, in.type, in.place}, root, call);
      });
      test("scatter", n * p, n,
           [&](ConstData in, Data out, const CallOptions& call) { comm.scatter(in, out, root, call); });
      test("gather", n, n * p,
           [&](ConstData in, Data out, const CallOptions& call) { comm.gather(in, out, root, call); });
      test("all-gather", n, n * p,
           [&](ConstData in, Data out, const CallOptions& call) { comm.all_gather(in, out, call); });
      test("all-to-all", n * p, n * p,
           [&](ConstData in, Data out, const CallOptions& call) { comm.all_to_all(in, out, call); });
      std::vector<size_t> counts(p);  // of members
      size_t total = 0;
      for (size_t r = 0; r < p; ++r) total += counts[r] = r % 3 == 1 ? 0 : n / (r + 1);
      test("all-gather-v", counts[me], total,
           [&](ConstData in, Data out, const CallOptions& call) { comm.all_gather_v(in, out, counts, call); });
      const auto between = [&](size_t from, size_t to) { return (from + 2 * to) % 4 * n / 4; };
      std::vector<size_t> sent(p), received(p);
      size_t all_sent = 0, all_received = 0;
      for (size_t r = 0; r < p; ++r) {
        all_sent += sent[r] = between(me, r);
        all_received += received[r] = between(r, me);
      }
      test("all-to-all-v", all_sent, all_received,
           [&](ConstData in, Data out, const CallOptions& call) { comm.all_to_all_v(in, sent, out, received, call); });
    }
  }
  return cases;
}

inline int check_gpu_messages(Communicator& comm, GpuArena& arena) {
  const int p = comm.size(), next = (comm.rank() + 1) % p, before = (comm.rank() + p - 1) % p;
  int cases = 0;
  for (const size_t n : {size_t{0}, size_t{1}, size_t{1000}, size_t{70001}}) {
    compare(comm, arena, "send-recv", DataType::kFloat, n, n, 900 + n,
            [&](ConstData in, Data out, const CallOptions& call) { comm.send_recv(in, next, out, before, 3, call); });
    // Two messages each way, asked for in the other order.
    compare(comm, arena, "messages in the background", DataType::kInt32, 2 * n, 2 * n, 950 + n,
            [&](ConstData in, Data out, const CallOptions& call) {
              Handle handles[] = {
                  comm.start_recv(out.part(n, n), before, 8, call), comm.start_recv(out.part(0, n), before, 7, call),
                  comm.start_send(in.part(0, n), next, 7, call), comm.start_send(in.part(n, n), next, 8, call)};
              for (Handle& handle : handles) handle.wait();
            });
    cases += 2;
  }
  return cases;
}

inline int check_gpu_unordered(Communicator& comm, GpuArena& arena) {
  constexpr size_t kCount = 70001;
  Host wanted = random_bytes(kCount, DataType::kFloat, 77 + static_cast<uint64_t>(comm.rank()));
  const Data data = arena.out(wanted, DataType::kFloat);
  comm.all_reduce(view(wanted, DataType::kFloat));
  CallOptions call;
  call.stream = arena.stream();
  call.ordered = false;
  comm.all_reduce(data, ReduceOp::kSum, call);
  const Host got = arena.result(data, "all-reduce in any order");
  for (size_t i = 0; i < kCount; ++i) {
    float a = 0, b = 0;
    std::memcpy(&a, &wanted[4 * i], 4);
    std::memcpy(&b, &got[4 * i], 4);
    // Every partial sum is below 2p, and there are p - 1 of them.
    if (!(std::fabs(a - b) <= 2e-7f * 2 * static_cast<float>(comm.size() * comm.size())))
      throw Error(fmt::format("all-reduce in any order: element {} is {} instead of {}", i, b, a));
  }
  return 1;
}

/// Memory that other processes cannot open, fresh memory at an old address, and operands that begin anywhere.
inline int check_gpu_odd_memory(Communicator& comm, GpuArena& arena) {
  int cases = 0;
  for (const size_t n : {size_t{5003}, size_t{700001}, size_t{100}}) {
    for (int kind = 0; kind < 3; ++kind) {  // 0 cudaMalloc, 1 pool, 2 pool on even ranks only
      const bool pooled = kind == 1 || (kind == 2 && comm.rank() % 2 == 0);
      const std::string name = fmt::format("all-reduce of {} float in memory of kind {}", n, kind);
      Host wanted = random_bytes(n, DataType::kFloat, n + static_cast<uint64_t>(comm.rank()));
      std::byte* memory = nullptr;
      gpu::check(pooled ? cudaMallocAsync(reinterpret_cast<void**>(&memory), 4 * n + 4, arena.stream())
                        : cudaMalloc(reinterpret_cast<void**>(&memory), 4 * n + 4),
                 "cudaMalloc");
      gpu::check(cudaMemcpyAsync(memory + 4, wanted.data(), 4 * n, cudaMemcpyHostToDevice, arena.stream()), "copy");
      CallOptions call;
      call.stream = arena.stream();
      const Data data(memory + 4, n, DataType::kFloat, Place::kGpu);
      comm.all_reduce(data, ReduceOp::kSum, call);
      comm.all_reduce(view(wanted, DataType::kFloat));
      Host got(4 * n);
      gpu::check(cudaMemcpyAsync(got.data(), memory + 4, 4 * n, cudaMemcpyDeviceToHost, arena.stream()), "copy");
      gpu::check(cudaStreamSynchronize(arena.stream()), "cudaStreamSynchronize");
      expect_same(name, comm.rank(), wanted, got, DataType::kFloat);
      gpu::check(pooled ? cudaFreeAsync(memory, arena.stream()) : cudaFree(memory), "cudaFree");
      ++cases;
    }
  }
  return cases;
}

/// Ten operations started at once behind a kernel that takes 60 ms: neither start nor wait_on may wait for it.
inline int check_gpu_streams(Communicator& comm, GpuArena& arena) {
  constexpr size_t kCount = 10007;
  constexpr int kOperations = 10;
  constexpr auto kSpin = std::chrono::milliseconds(60);
  const size_t bytes = kCount * sizeof(float);
  const Buffer buffer = comm.allocate_gpu(bytes * kOperations);
  const Buffer copy = comm.allocate_gpu(bytes * kOperations);
  cudaStream_t other = nullptr;
  gpu::check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  std::vector<Host> wanted;
  for (int i = 0; i < kOperations; ++i)
    wanted.push_back(random_bytes(kCount, DataType::kFloat, static_cast<uint64_t>(100 * i + comm.rank())));
  std::byte* pinned = nullptr;  // copies from other memory could wait for the kernel
  gpu::check(cudaMallocHost(reinterpret_cast<void**>(&pinned), bytes * kOperations), "cudaMallocHost");
  for (size_t i = 0; i < kOperations; ++i) std::memcpy(pinned + i * bytes, wanted[i].data(), bytes);
  CallOptions call;
  call.stream = arena.stream();
  comm.barrier();
  gpu::enqueue_spin(arena.stream(), kSpin);
  std::vector<Handle> handles;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kOperations; ++i) {
    const size_t offset = static_cast<size_t>(i) * bytes;
    std::byte* at = static_cast<std::byte*>(buffer.data()) + offset;
    gpu::check(cudaMemcpyAsync(at, pinned + offset, bytes, cudaMemcpyHostToDevice, arena.stream()), "copy");
    handles.push_back(comm.start_all_reduce({at, kCount, DataType::kFloat, Place::kGpu}, ReduceOp::kSum, call));
  }
  const Clock::duration started = Clock::now() - start;
  handles[0].wait_on(other);
  handles[1].wait_on(other);
  const Clock::duration waited = Clock::now() - start;
  for (Handle& handle : handles) handle.wait_on(other);
  gpu::check(cudaMemcpyAsync(copy.data(), buffer.data(), bytes * kOperations, cudaMemcpyDeviceToDevice, other), "copy");
  Host got(bytes * kOperations);
  gpu::check(cudaMemcpyAsync(got.data(), copy.data(), got.size(), cudaMemcpyDeviceToHost, other), "copy");
  gpu::check(cudaStreamSynchronize(other), "cudaStreamSynchronize");
  const Clock::duration ended = Clock::now() - start;
  for (Handle& handle : handles) handle.wait();
  for (size_t i = 0; i < kOperations; ++i) {
    comm.all_reduce(view(wanted[i], DataType::kFloat));
    expect_same(
        fmt::format("all-reduce {} of ten at once", i), comm.rank(), wanted[i],
        Host(got.begin() + static_cast<ptrdiff_t>(i * bytes), got.begin() + static_cast<ptrdiff_t>((i + 1) * bytes)),
        DataType::kFloat);
  }
  cudaStreamDestroy(other);
  cudaFreeHost(pinned);
  const auto ms = [](Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); };
  if (comm.rank() == 0)
    fmt::print("started after {:.1f} ms, streams told after {:.1f} ms, ended after {:.1f} ms\n", ms(started),
               ms(waited), ms(ended));
  if (ended < kSpin * 3 / 4) {  // when streams are told is a matter of speed, and only printed
    throw Error(
        fmt::format("a kernel of 60 ms in front: started after {:.1f} ms, streams told after {:.1f} ms, ended "
                    "after {:.1f} ms",
                    ms(started), ms(waited), ms(ended)));
  }
  return kOperations;
}

inline int check_gpu_groups(Communicator& comm, GpuArena& arena) {
  int cases = 0;
  GpuCheckOptions few;
  few.counts = {1, 5003};
  few.all_types = false;
  for (int round = 0; round < 2; ++round) {
    // Halves in reverse order; then all but the last.
    const bool halves = round == 0;
    const int color = halves ? comm.rank() % 2 : comm.rank() == comm.size() - 1 ? -1 : 5;
    const auto group = comm.split(color, halves ? -comm.rank() : 0);
    if (!group) continue;
    cases += check_gpu_reductions(*group, arena, few) + check_gpu_copies(*group, arena, few);
  }
  comm.barrier();
  return cases;
}

inline int check_gpu_usage_errors(Communicator& comm, GpuArena& arena) {
  std::vector<float> host(10);
  const Data device = arena.out(Host(40), DataType::kFloat);
  int caught = 0;
  try {
    comm.all_gather(ConstData(host.data(), 0, DataType::kFloat), device.part(0, 0));
  } catch (const UsageError&) {
    ++caught;
  }
  try {
    comm.send_recv(host, comm.rank(), device, comm.rank());
  } catch (const UsageError&) {
    ++caught;
  }
  if (caught != 2) throw Error("operands in two kinds of memory were accepted");
  comm.all_reduce(host);  // the communicator is as whole as before
  return caught;
}

}  // namespace trireme
