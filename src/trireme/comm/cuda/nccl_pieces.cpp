// Operations made of messages between all members and of sums along the tree.
#include <algorithm>

#include "trireme/comm/cuda/nccl_operations.h"
#include "trireme/comm/cuda/ordered_sum.h"

namespace trireme {
namespace {

/// The parts of an ordered reduction are whole lines, so that sums run on aligned vectors; the last may be short.
Part line_part(size_t count, size_t width, size_t parts, size_t index) {
  const size_t line = 128 / width;
  const size_t lines = (count + line - 1) / line;
  const size_t size = (lines + parts - 1) / parts * line;
  const size_t first = std::min(index * size, count);
  return {first, std::min(size, count - first)};
}

}  // namespace

void NcclOperations::enqueue(const BoardCollectives::Call& call, const GpuRequest& request, GpuTask& base) {
  auto& task = static_cast<CudaTask&>(base);
  const DeviceGuard guard(device_);
  if (request.kind == OperationKind::kAllToAllV) {
    exchange_counts(call, request);
  } else {
    meet(call);
  }
  gpu::check(cudaStreamWaitEvent(stream_, task.ready(), 0), "cudaStreamWaitEvent for the operands");
  issue(request, [&] { call.waiter.check(); });
  EventPool::Event own = events_->take();
  const cudaEvent_t event = own.get();
  gpu::check(cudaEventRecord(event, stream_), "cudaEventRecord of an operation");
  task.set_enqueued(event, std::move(own));
  count_traffic(request);
}

template <typename PieceOf>
void NcclOperations::send_all(const char* what, const Check& check, PieceOf piece) {
  const int me = rank();
  std::vector<Piece> pieces(static_cast<size_t>(size()));
  for (int member = 0; member < size(); ++member) pieces[static_cast<size_t>(member)] = piece(member);
  Piece& own = pieces[static_cast<size_t>(me)];
  if (own.in_bytes > 0 && own.in != own.out) {
    gpu::check(cudaMemcpyAsync(own.in, own.out, own.in_bytes, cudaMemcpyDeviceToDevice, stream_),
               "cudaMemcpyAsync of this rank's own part");
  }
  own = {};
  if (size() > 1) transfer(what, pieces, check);
}

void NcclOperations::issue(const GpuRequest& request, const Check& check) {
  const int me = rank(), root = request.root;
  const size_t p = static_cast<size_t>(size());
  const auto* in = request.in.bytes;
  auto* out = request.out.bytes;
  const size_t in_bytes = request.in.num_bytes(), out_bytes = request.out.num_bytes();
  if (request.kind == OperationKind::kAllReduce && p == 1) return;  // it is in place
  if (do_natively(request, check)) return;
  switch (request.kind) {
    case OperationKind::kBroadcast:
    case OperationKind::kAllGather:
      return;  // of nothing, or of one member
    case OperationKind::kScatter:
      return send_all("a scatter", check, [&](int member) {
        Piece piece;
        if (me == root) {
          piece.out = in + static_cast<size_t>(member) * out_bytes;
          piece.out_bytes = out_bytes;
        }
        if (member == root) {
          piece.in = out;
          piece.in_bytes = out_bytes;
        }
        return piece;
      });
    case OperationKind::kGather:
      return send_all("a gather", check, [&](int member) {
        Piece piece;
        if (member == root) {
          piece.out = in;
          piece.out_bytes = in_bytes;
        }
        if (me == root) {
          piece.in = out + static_cast<size_t>(member) * in_bytes;
          piece.in_bytes = in_bytes;
        }
        return piece;
      });
    case OperationKind::kAllGatherV: {
      const size_t width = size_of(request.in.type);
      std::vector<size_t> first(p, 0);
      for (size_t r = 1; r < p; ++r) first[r] = first[r - 1] + request.recv_counts[r - 1];
      return send_all("an all-gather", check, [&](int member) {
        const size_t r = static_cast<size_t>(member);
        return Piece{in, in_bytes, out + first[r] * width, request.recv_counts[r] * width};
      });
    }
    case OperationKind::kReduce:
    case OperationKind::kAllReduce:
      if (in_bytes > 0) reduce_in_order(request, check);
      return;
    case OperationKind::kReduceScatter:
      if (out_bytes > 0) reduce_scatter_in_order(request, check);
      return;
    case OperationKind::kReduceScatterV:
      return reduce_scatter_in_order(request, check);
    case OperationKind::kAllToAll:
      return send_all("an all-to-all", check, [&](int member) {
        const size_t block = in_bytes / p, at = static_cast<size_t>(member) * block;
        return Piece{in + at, block, out + at, block};
      });
    case OperationKind::kAllToAllV: {
      const size_t width = size_of(request.in.type);
      std::vector<size_t> to(p, 0), from(p, 0);
      for (size_t r = 1; r < p; ++r) {
        to[r] = to[r - 1] + request.send_counts[r - 1];
        from[r] = from[r - 1] + request.recv_counts[r - 1];
      }
      return send_all("an all-to-all", check, [&](int member) {
        const size_t r = static_cast<size_t>(member);
        return Piece{in + to[r] * width, request.send_counts[r] * width, out + from[r] * width,
                     request.recv_counts[r] * width};
      });
    }
    default:
      throw Error("this operation is not one that a GPU does: " + std::string(name_of(request.kind)));
  }
}

std::byte* NcclOperations::scratch(size_t num_bytes) {
  if (num_bytes > scratch_bytes_) {
    free_scratch();
    gpu::check(cudaMallocAsync(&scratch_, num_bytes, stream_), "cudaMallocAsync of scratch memory");
    scratch_bytes_ = num_bytes;
  }
  return static_cast<std::byte*>(scratch_);
}

void NcclOperations::free_scratch() {
  if (scratch_ == nullptr) return;
  cudaFreeAsync(scratch_, stream_);  // in the order of the stream: it does not wait for the GPU
  scratch_ = nullptr;
  scratch_bytes_ = 0;
}

// More sources than a kernel takes are summed in groups, which are whole branches of the tree; a group's sum goes to a
// received part, never to this rank's own operand.
void NcclOperations::sum(const GpuRequest& request, std::vector<const void*> sources, void* out, size_t count) {
  const ReduceOp inner = request.op == ReduceOp::kAverage ? ReduceOp::kSum : request.op;
  const auto enqueue = [&](ReduceOp op, std::span<const void* const> from, void* to) {
    const gpu::CombineJob job{from, std::span<void* const>(&to, 1), count};
    gpu::enqueue_combine(stream_, op, request.in.type, std::span(&job, 1), static_cast<size_t>(size()));
  };
  const void* const own = sources[static_cast<size_t>(rank())];
  while (sources.size() > gpu::kMaxSources) {
    std::vector<const void*> sums;
    for (size_t first = 0; first < sources.size(); first += gpu::kMaxSources) {
      const auto group = std::span(sources).subspan(first, std::min<size_t>(gpu::kMaxSources, sources.size() - first));
      const void* to = group.size() > 1 && group[0] == own ? group[1] : group[0];
      if (group.size() > 1) enqueue(inner, group, const_cast<void*>(to));
      sums.push_back(to);
    }
    sources = std::move(sums);
  }
  enqueue(request.op, sources, out);
}

// Both for all-reduce, where everybody needs the sums, and for reduce, where the root does.
void NcclOperations::reduce_in_order(const GpuRequest& request, const Check& check) {
  const size_t p = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  const size_t width = size_of(request.in.type);
  const auto part = [&](size_t r) { return line_part(request.in.count, width, p, r); };
  const Part own = part(me);
  const size_t stride = part(0).count * width;  // the first part is the longest
  std::byte* const parts = scratch(stride * p);
  send_all("the first half of an ordered reduction", check, [&](int member) {
    const size_t r = static_cast<size_t>(member);
    const Part theirs = part(r);
    if (r == me) return Piece{};
    return Piece{request.in.bytes + theirs.first * width, theirs.count * width, parts + r * stride, own.count * width};
  });
  std::vector<const void*> sources(p);
  for (size_t r = 0; r < p; ++r) sources[r] = r == me ? request.in.bytes + own.first * width : parts + r * stride;
  const bool to_all = request.kind == OperationKind::kAllReduce;
  const bool is_target = to_all || rank() == request.root;
  std::byte* const result = is_target ? request.out.bytes + own.first * width : parts + me * stride;
  if (own.count > 0) sum(request, sources, result, own.count);
  send_all("the second half of an ordered reduction", check, [&](int member) {
    const size_t r = static_cast<size_t>(member);
    const Part theirs = part(r);
    Piece piece;
    if (r == me) return piece;
    if (to_all || member == request.root) {
      piece.out = result;
      piece.out_bytes = own.count * width;
    }
    if (is_target) {
      piece.in = request.out.bytes + theirs.first * width;
      piece.in_bytes = theirs.count * width;
    }
    return piece;
  });
}

void NcclOperations::reduce_scatter_in_order(const GpuRequest& request, const Check& check) {
  const size_t p = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  const size_t own = request.out.num_bytes(), width = size_of(request.in.type);
  const auto bytes_of = [&](size_t r) { return request.send_counts.empty() ? own : request.send_counts[r] * width; };
  std::vector<size_t> at(p, 0);
  for (size_t r = 1; r < p; ++r) at[r] = at[r - 1] + bytes_of(r - 1);
  const size_t stride = (own + 127) / 128 * 128;
  std::byte* const parts = scratch(stride * p);
  send_all("the first half of an ordered reduce-scatter", check, [&](int member) {
    const size_t r = static_cast<size_t>(member);
    if (r == me) return Piece{};
    return Piece{request.in.bytes + at[r], bytes_of(r), parts + r * stride, own};
  });
  if (own == 0) return;
  std::vector<const void*> sources(p);
  for (size_t r = 0; r < p; ++r) sources[r] = r == me ? request.in.bytes + at[me] : parts + r * stride;
  sum(request, sources, request.out.bytes, request.out.count);
}

}  // namespace trireme
