#include "trireme/tensor/redistribute.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>

#include <numeric>

#include "trireme/base/error.h"
#include "trireme/tensor/host_shared_tensor.h"

namespace trireme {
namespace {

using Sizes = std::vector<int64_t>;

/// Dtypes that are only copied (masks, small integers) are sent as bytes.
at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kChar ? tensor.view(at::kByte) : tensor;
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

/// Assembles the parts of all ranks, in order, along the sharded dimension.
void assemble(const std::vector<at::Tensor>& parts, const Placement& shard, at::Tensor& whole) {
  if (shard.stretches == 1 && shard.ratio == Placement::Ratio{1, 0, 0}) {
    at::cat_out(whole, parts, shard.dim);
    return;
  }
  const int axis_size = static_cast<int>(parts.size());
  for (int rank = 0; rank < axis_size; ++rank) {
    int64_t at = 0;
    for (const Piece& piece : pieces(shard, whole.size(shard.dim), axis_size, rank)) {
      whole.narrow(shard.dim, piece.first, piece.length)
          .copy_(parts[static_cast<size_t>(rank)].narrow(shard.dim, at, piece.length));
      at += piece.length;
    }
  }
}

/// Views of the parts of all ranks, which are stored flat one after another.
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

Transfer all_gather(const at::Tensor& local, Communicator& comm, const Placement& shard, const Sizes& sizes) {
  const at::Tensor own = local.contiguous();
  std::vector<Sizes> parts;
  for (int rank = 0; rank < comm.size(); ++rank) parts.push_back(sizes_of_rank(sizes, shard, comm.size(), rank));
  const at::Tensor flat = at::empty({product(sizes)}, own.options());
  const Data in = data_of(as_bytes(own)), out = data_of(as_bytes(flat));
  Transfer transfer{flat.view(sizes), {own, flat}, {}, {}};
  if (is_even(shard, sizes[static_cast<size_t>(shard.dim)], comm.size())) {
    transfer.run = [&comm, in, out](const CallOptions& options) { comm.all_gather(in, out, options); };
    transfer.start = [&comm, in, out](const CallOptions& options) { return comm.start_all_gather(in, out, options); };
  } else {
    const auto counts = std::make_shared<const std::vector<size_t>>(counts_of(parts));
    transfer.run = [&comm, in, out, counts](const CallOptions& options) {
      comm.all_gather_v(in, out, *counts, options);
    };
    transfer.start = [&comm, in, out, counts](const CallOptions& options) {
      return comm.start_all_gather_v(in, out, *counts, options);
    };
  }
  // Blocks of the outermost dimension are already in the right order.
  const int64_t outside = product(Sizes(sizes.begin(), sizes.begin() + shard.dim));
  if (outside == 1 && shard.stretches == 1 && shard.ratio == Placement::Ratio{1, 0, 0}) return transfer;
  at::Tensor whole = transfer.result = at::empty(sizes, own.options());
  transfer.arrange = [flat, parts, shard, whole]() mutable { assemble(part_views(flat, parts), shard, whole); };
  return transfer;
}

/// This rank's part of a transfer that delivers the whole to all ranks.
Transfer cut_of(Transfer transfer, Communicator& comm, const Placement& shard) {
  const at::Tensor whole = transfer.result;
  at::Tensor own = at::empty(sizes_of_rank(whole.sizes().vec(), shard, comm.size(), comm.rank()), whole.options());
  transfer.arrange = [before = transfer.arrange, whole, own, shard, size = comm.size(), rank = comm.rank()]() mutable {
    if (before) before();
    own.copy_(cut_out(whole, shard, size, rank));
  };
  transfer.result = own;
  return transfer;
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

Transfer all_reduce_in_place(const at::Tensor& values, Communicator& comm, ReduceOp op) {
  const Data data = data_of(values);
  return {values,
          {},
          [&comm, data, op](const CallOptions& options) { comm.all_reduce(data, op, options); },
          [&comm, data, op](const CallOptions& options) { return comm.start_all_reduce(data, op, options); }};
}

Transfer all_reduce(const at::Tensor& local, Communicator& comm, PartialOp op) {
  return all_reduce_in_place(local.clone(at::MemoryFormat::Contiguous), comm, reduce_op(op));
}

Transfer reduce_scatter(const at::Tensor& local, Communicator& comm, PartialOp op, const Placement& shard) {
  const Sizes sizes = local.sizes().vec();
  if (!is_even(shard, sizes[static_cast<size_t>(shard.dim)], comm.size())) {
    return cut_of(all_reduce(local, comm, op), comm, shard);
  }
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    parts.push_back(cut_out(local, shard, comm.size(), rank).reshape({-1}));
  }
  const at::Tensor in = at::cat(parts);
  const at::Tensor out = at::empty(sizes_of_rank(sizes, shard, comm.size(), comm.rank()), local.options());
  const Data from = data_of(in), to = data_of(out);
  const ReduceOp by = reduce_op(op);
  return {
      out,
      {in},
      [&comm, from, to, by](const CallOptions& options) { comm.reduce_scatter(from, to, by, options); },
      [&comm, from, to, by](const CallOptions& options) { return comm.start_reduce_scatter(from, to, by, options); }};
}

/// Each rank splits its part by the new placement, and receives parts of its new part by the old one.
Transfer all_to_all(const at::Tensor& local, Communicator& comm, const Placement& from, const Placement& to,
                    const Sizes& sizes) {
  // Both placements shard the same dimension: rare, so done the simple way.
  if (from.dim == to.dim) return cut_of(all_gather(local, comm, from, sizes), comm, to);
  struct Counts {
    std::vector<size_t> sent, received;
  };
  std::vector<at::Tensor> outgoing;
  std::vector<Sizes> sent, received;
  const Sizes mine = sizes_of_rank(sizes, to, comm.size(), comm.rank());
  for (int rank = 0; rank < comm.size(); ++rank) {
    const at::Tensor part = cut_out(local, to, comm.size(), rank);
    sent.push_back(part.sizes().vec());
    outgoing.push_back(part.reshape({-1}));
    received.push_back(sizes_of_rank(mine, from, comm.size(), rank));
  }
  const at::Tensor in = at::cat(outgoing), flat = at::empty({product(mine)}, local.options());
  const Data out = data_of(as_bytes(in)), arriving = data_of(as_bytes(flat));
  const auto counts = std::make_shared<const Counts>(counts_of(sent), counts_of(received));
  at::Tensor result = at::empty(mine, local.options());
  return {result,
          {in, flat},
          [&comm, out, arriving, counts](const CallOptions& options) {
            comm.all_to_all_v(out, counts->sent, arriving, counts->received, options);
          },
          [&comm, out, arriving, counts](const CallOptions& options) {
            return comm.start_all_to_all_v(out, counts->sent, arriving, counts->received, options);
          },
          [flat, received, from, result]() mutable { assemble(part_views(flat, received), from, result); }};
}

/// A step without communication.
at::Tensor step_here(const at::Tensor& local, const Communicator& comm, const RedistributionStep& step) {
  if (step.movement == Movement::kSlice) return cut_out(local, step.to, comm.size(), comm.rank()).contiguous();
  return comm.rank() == 0 ? local : at::zeros_like(local);
}

bool is_collective(Movement movement) { return movement != Movement::kSlice && movement != Movement::kSpread; }

/// `sizes` are those that the ranks of the axis hold together.
Transfer transfer_for(const at::Tensor& local, Communicator& comm, const RedistributionStep& step, const Sizes& sizes) {
  switch (step.movement) {
    case Movement::kAllGather:
      return all_gather(local, comm, step.from, sizes);
    case Movement::kAllToAll:
      return all_to_all(local, comm, step.from, step.to, sizes);
    case Movement::kAllReduce:
      return all_reduce(local, comm, step.from.op);
    case Movement::kReduceScatter:
      return reduce_scatter(local, comm, step.from.op, step.to);
    case Movement::kSlice:
    case Movement::kSpread:
      break;
  }
  throw Error(fmt::format("{} is no collective", name_of(step.movement)));
}

StartedPart move(at::Tensor local, DeviceMesh& mesh, const MeshLayout& from, const MeshLayout& to,
                 c10::IntArrayRef sizes, bool in_background) {
  const Sizes global = sizes.vec();
  std::vector<Placement> state = from.placements;
  const auto steps = plan_redistribution(from.placements, to.placements, mesh.axis_sizes(), global);
  for (size_t i = 0; i < steps.size(); ++i) {
    const RedistributionStep& step = steps[i];
    Communicator& comm = mesh.axis(step.axis);
    const auto kind = static_cast<size_t>(step.movement);
    ++mesh.counts().calls[kind];
    mesh.counts().bytes[kind] += static_cast<int64_t>(local.nbytes());
    if (!is_collective(step.movement)) {
      local = step_here(local, comm, step);
    } else {
      // For this axis its dimension is whole, but other axes may shard it, too.
      std::vector<Placement> without = state;
      without[static_cast<size_t>(step.axis)] = Placement::replicate();
      Transfer transfer =
          transfer_for(local, comm, step, local_sizes(global, without, mesh.axis_sizes(), mesh.coordinates()));
      if (in_background && i + 1 == steps.size()) {
        const at::Tensor result = transfer.result;
        return {result, std::make_shared<InFlight>(std::move(transfer), mesh.shared_from_this())};
      }
      local = complete(transfer);
    }
    state[static_cast<size_t>(step.axis)] = step.to;
  }
  return {local, nullptr};
}

}  // namespace

at::Tensor cut_out(const at::Tensor& whole, const Placement& shard, int axis_size, int coordinate) {
  const std::vector<Piece> own = pieces(shard, whole.size(shard.dim), axis_size, coordinate);
  if (own.size() == 1) return whole.narrow(shard.dim, own[0].first, own[0].length);
  std::vector<at::Tensor> parts;
  for (const Piece& piece : own) parts.push_back(whole.narrow(shard.dim, piece.first, piece.length));
  return at::cat(parts, shard.dim);
}

at::Tensor redistribute_local(at::Tensor local, DeviceMesh& mesh, const MeshLayout& from, const MeshLayout& to,
                              c10::IntArrayRef sizes) {
  if (&from == &to) return local;
  return move(std::move(local), mesh, from, to, sizes, false).part;
}

StartedPart start_redistribute_local(const at::Tensor& local, DeviceMesh& mesh, const MeshLayout& from,
                                     const MeshLayout& to, c10::IntArrayRef sizes) {
  if (&from == &to) return {local, nullptr};
  return move(local, mesh, from, to, sizes, true);
}

void reduce_over_axis(at::Tensor& values, DeviceMesh& mesh, int axis, ReduceOp op) {
  ++mesh.counts().inner_calls;
  mesh.counts().inner_bytes += static_cast<int64_t>(values.nbytes());
  complete(all_reduce_in_place(values, mesh.axis(axis), op));
}

}  // namespace trireme
