#include "trireme/tensor/redistribute.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <numeric>

#include "trireme/base/error.h"
#include "trireme/tensor/shared_tensor.h"

namespace trireme {
namespace {

using Sizes = std::vector<int64_t>;

/// Types that only travel (masks, small integers) go as bytes.
at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kChar ? tensor.view(at::kByte) : tensor;
}

/// On a GPU the collective runs on a stream of the communicator's, and the current one waits; on the host at once.
template <typename Now, typename Start>
void run(const at::Tensor& operand, Now now, Start start) {
  if (!operand.is_cuda()) return now();
  const CallOptions options = call_options(operand.device());
  start(options).wait_on(options.stream);
}

Sizes sizes_of_rank(const Sizes& sizes, const Placement& shard, int axis_size, int coordinate) {
  Sizes own = sizes;
  int64_t& extent = own[static_cast<size_t>(shard.dim)];
  extent = local_extent(shard, extent, axis_size, coordinate);
  return own;
}

int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Parts of all ranks, in order, put together along the cut.
at::Tensor assemble(const std::vector<at::Tensor>& parts, const Placement& shard, const Sizes& sizes) {
  if (shard.stretches == 1 && shard.ratio == Placement::Ratio{1, 0, 0}) return at::cat(parts, shard.dim);
  at::Tensor whole = at::empty(sizes, parts[0].options());
  const int axis_size = static_cast<int>(parts.size());
  for (int rank = 0; rank < axis_size; ++rank) {
    int64_t at = 0;
    for (const Piece& piece : pieces(shard, sizes[static_cast<size_t>(shard.dim)], axis_size, rank)) {
      whole.narrow(shard.dim, piece.first, piece.length)
          .copy_(parts[static_cast<size_t>(rank)].narrow(shard.dim, at, piece.length));
      at += piece.length;
    }
  }
  return whole;
}

/// Flat parts one after another, as all ranks would have them.
std::vector<at::Tensor> part_views(const at::Tensor& flat, const std::vector<Sizes>& sizes) {
  std::vector<at::Tensor> views;
  int64_t at = 0;
  for (const Sizes& own : sizes) {
    const int64_t count = product(own);
    views.push_back(flat.narrow(0, at, count).view(own));
    at += count;
  }
  return views;
}

std::vector<size_t> counts_of(const std::vector<Sizes>& sizes) {
  std::vector<size_t> counts;
  for (const Sizes& own : sizes) counts.push_back(static_cast<size_t>(product(own)));
  return counts;
}

at::Tensor all_gather(const at::Tensor& local, Communicator& comm, const Placement& shard, const Sizes& sizes) {
  const at::Tensor own = local.contiguous();
  std::vector<Sizes> parts;
  for (int rank = 0; rank < comm.size(); ++rank) parts.push_back(sizes_of_rank(sizes, shard, comm.size(), rank));
  at::Tensor flat = at::empty({product(sizes)}, own.options());
  const Data in = data_of(as_bytes(own)), out = data_of(as_bytes(flat));
  const std::vector<size_t> counts = counts_of(parts);
  if (is_even(shard, sizes[static_cast<size_t>(shard.dim)], comm.size())) {
    run(
        own, [&] { comm.all_gather(in, out); },
        [&](const CallOptions& options) { return comm.start_all_gather(in, out, options); });
  } else {
    run(
        own, [&] { comm.all_gather_v(in, out, counts); },
        [&](const CallOptions& options) { return comm.start_all_gather_v(in, out, counts, options); });
  }
  // Blocks of the outermost dimension lie as they should already.
  const int64_t outside = product(Sizes(sizes.begin(), sizes.begin() + shard.dim));
  if (outside == 1 && shard.stretches == 1 && shard.ratio == Placement::Ratio{1, 0, 0}) return flat.view(sizes);
  return assemble(part_views(flat, parts), shard, sizes);
}

ReduceOp reduce_op(PartialOp op) {
  switch (op) {
    case PartialOp::kSum:
      return ReduceOp::kSum;
    case PartialOp::kAverage:
      return ReduceOp::kAverage;
    case PartialOp::kMax:
      return ReduceOp::kMax;
    case PartialOp::kMin:
      return ReduceOp::kMin;
  }
  return ReduceOp::kSum;
}

void all_reduce_in_place(const at::Tensor& values, Communicator& comm, ReduceOp op) {
  const Data data = data_of(values);
  run(
      values, [&] { comm.all_reduce(data, op); },
      [&](const CallOptions& options) { return comm.start_all_reduce(data, op, options); });
}

at::Tensor all_reduce(const at::Tensor& local, Communicator& comm, PartialOp op) {
  at::Tensor sum = local.clone(at::MemoryFormat::Contiguous);
  all_reduce_in_place(sum, comm, reduce_op(op));
  return sum;
}

at::Tensor reduce_scatter(const at::Tensor& local, Communicator& comm, PartialOp op, const Placement& shard) {
  const Sizes sizes = local.sizes().vec();
  if (!is_even(shard, sizes[static_cast<size_t>(shard.dim)], comm.size())) {
    return cut_out(all_reduce(local, comm, op), shard, comm.size(), comm.rank()).contiguous();
  }
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    parts.push_back(cut_out(local, shard, comm.size(), rank).reshape({-1}));
  }
  const at::Tensor in = at::cat(parts);
  at::Tensor out = at::empty(sizes_of_rank(sizes, shard, comm.size(), comm.rank()), local.options());
  const Data from = data_of(in), to = data_of(out);
  run(
      in, [&] { comm.reduce_scatter(from, to, reduce_op(op)); },
      [&](const CallOptions& options) { return comm.start_reduce_scatter(from, to, reduce_op(op), options); });
  return out;
}

/// Each rank cuts its part by the new placement; what it gets are parts of its new part by the old one.
at::Tensor all_to_all(const at::Tensor& local, Communicator& comm, const Placement& from, const Placement& to,
                      const Sizes& sizes) {
  if (from.dim == to.dim) {  // pieces of one dimension against each other: rare, so the simple way
    return cut_out(all_gather(local, comm, from, sizes), to, comm.size(), comm.rank()).contiguous();
  }
  std::vector<at::Tensor> outgoing;
  std::vector<Sizes> sent, received;
  const Sizes mine = sizes_of_rank(sizes, to, comm.size(), comm.rank());
  for (int rank = 0; rank < comm.size(); ++rank) {
    const at::Tensor part = cut_out(local, to, comm.size(), rank);
    sent.push_back(part.sizes().vec());
    outgoing.push_back(part.reshape({-1}));
    received.push_back(sizes_of_rank(mine, from, comm.size(), rank));
  }
  const at::Tensor in = at::cat(outgoing);
  at::Tensor flat = at::empty({product(mine)}, local.options());
  const Data out = data_of(as_bytes(in)), arriving = data_of(as_bytes(flat));
  const std::vector<size_t> out_counts = counts_of(sent), in_counts = counts_of(received);
  run(
      in, [&] { comm.all_to_all_v(out, out_counts, arriving, in_counts); },
      [&](const CallOptions& options) {
        return comm.start_all_to_all_v(out, out_counts, arriving, in_counts, options);
      });
  return assemble(part_views(flat, received), from, mine);
}

}  // namespace

at::Tensor cut_out(const at::Tensor& whole, const Placement& shard, int axis_size, int coordinate) {
  const std::vector<Piece> own = pieces(shard, whole.size(shard.dim), axis_size, coordinate);
  if (own.size() == 1) return whole.narrow(shard.dim, own[0].first, own[0].length);
  std::vector<at::Tensor> parts;
  for (const Piece& piece : own) parts.push_back(whole.narrow(shard.dim, piece.first, piece.length));
  return at::cat(parts, shard.dim);
}

at::Tensor run_step(const at::Tensor& local, DeviceMesh& mesh, const RedistributionStep& step,
                    const Sizes& sizes_at_axis) {
  Communicator& comm = mesh.axis(step.axis);
  const auto kind = static_cast<size_t>(step.movement);
  ++mesh.counts().calls[kind];
  mesh.counts().bytes[kind] += static_cast<int64_t>(local.nbytes());
  switch (step.movement) {
    case Movement::kSlice:
      return cut_out(local, step.to, comm.size(), comm.rank()).contiguous();
    case Movement::kSpread:
      return comm.rank() == 0 ? local : at::zeros_like(local);
    case Movement::kAllGather:
      return all_gather(local, comm, step.from, sizes_at_axis);
    case Movement::kAllToAll:
      return all_to_all(local, comm, step.from, step.to, sizes_at_axis);
    case Movement::kAllReduce:
      return all_reduce(local, comm, step.from.op);
    case Movement::kReduceScatter:
      return reduce_scatter(local, comm, step.from.op, step.to);
  }
  throw Error("unknown movement");
}

at::Tensor redistribute_local(at::Tensor local, DeviceMesh& mesh, const MeshLayout& from, const MeshLayout& to,
                              c10::IntArrayRef sizes) {
  if (&from == &to) return local;
  const Sizes global = sizes.vec();
  std::vector<Placement> state = from.placements;
  for (const RedistributionStep& step :
       plan_redistribution(from.placements, to.placements, mesh.axis_sizes(), global)) {
    // Dimensions that this axis cuts are whole for it, but may be parts for the axes before and after.
    std::vector<Placement> without = state;
    without[static_cast<size_t>(step.axis)] = Placement::replicate();
    local = run_step(local, mesh, step, local_sizes(global, without, mesh.axis_sizes(), mesh.coordinates()));
    state[static_cast<size_t>(step.axis)] = step.to;
  }
  return local;
}

void reduce_over_axis(at::Tensor& values, DeviceMesh& mesh, int axis, ReduceOp op) {
  ++mesh.counts().inner_calls;
  mesh.counts().inner_bytes += static_cast<int64_t>(values.nbytes());
  all_reduce_in_place(values, mesh.axis(axis), op);
}

}  // namespace trireme
