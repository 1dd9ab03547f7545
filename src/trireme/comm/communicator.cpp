#include "trireme/comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "trireme/comm/communicator_impl.h"

namespace trireme {
namespace {

using Call = BoardCollectives::Call;

/// An operation that is ready to run: what to say about it and what to do.
template <typename Body>
struct Prepared {
  OperationDigest digest;
  uint64_t extra;
  Body body;
};
template <typename Body>
Prepared(OperationDigest, uint64_t, Body) -> Prepared<Body>;

OperationDigest digest_of(OperationKind kind, DataType type, size_t count, int root = -1,
                          ReduceOp op = ReduceOp::kSum) {
  OperationDigest digest;
  digest.kind = kind;
  digest.type = type;
  digest.count = count;
  digest.root = root;
  digest.op = op;
  return digest;
}

void check_member(const char* what, int member, int size) {
  if (member < 0 || member >= size)
    throw UsageError(fmt::format("{} {} is outside the group, which has {} ranks", what, member, size));
}

void check_same_type(DataType a, DataType b) {
  if (a != b) throw UsageError(fmt::format("the operands have different types: {} and {}", name_of(a), name_of(b)));
}

void check_count(const char* what, size_t count, size_t wanted) {
  if (count != wanted) throw UsageError(fmt::format("{} has {} elements, but needs {}", what, count, wanted));
}

size_t sum_of(std::span<const size_t> counts) { return std::accumulate(counts.begin(), counts.end(), size_t{0}); }

auto prepare_barrier(Communicator::Impl& group) {
  return Prepared{digest_of(OperationKind::kBarrier, DataType::kUInt8, 0), 0, [&group](const Call& call) {
                    if (group.size() == 1) return;
                    if (group.host_shared) return group.host_shared->barrier(call);
                    Messenger messenger = group.messenger(call);
                    barrier_by_messages(messenger);
                  }};
}

auto prepare_broadcast(Communicator::Impl& group, Data data, int root) {
  check_member("root", root, group.size());
  return Prepared{digest_of(OperationKind::kBroadcast, data.type, data.count, root), 0,
                  [&group, data, root](const Call& call) {
                    if (group.size() == 1) return;
                    if (group.host_shared) return group.host_shared->broadcast(call, data, root);
                    Messenger messenger = group.messenger(call);
                    broadcast_by_messages(messenger, data, root);
                  }};
}

auto prepare_scatter(Communicator::Impl& group, ConstData in, Data out, int root) {
  check_member("root", root, group.size());
  if (group.group.rank == root) {
    check_same_type(in.type, out.type);
    check_count("the input of the root of a scatter", in.count, out.count * static_cast<size_t>(group.size()));
  }
  return Prepared{digest_of(OperationKind::kScatter, out.type, out.count, root), 0,
                  [&group, in, out, root](const Call& call) {
                    if (group.host_shared) return group.host_shared->scatter(call, in, out, root);
                    Messenger messenger = group.messenger(call);
                    scatter_by_messages(messenger, in, out, root);
                  }};
}

auto prepare_gather(Communicator::Impl& group, ConstData in, Data out, int root) {
  check_member("root", root, group.size());
  if (group.group.rank == root) {
    check_same_type(in.type, out.type);
    check_count("the output of the root of a gather", out.count, in.count * static_cast<size_t>(group.size()));
  }
  return Prepared{digest_of(OperationKind::kGather, in.type, in.count, root), 0,
                  [&group, in, out, root](const Call& call) {
                    if (group.host_shared) return group.host_shared->gather(call, in, out, root);
                    Messenger messenger = group.messenger(call);
                    gather_by_messages(messenger, in, out, root);
                  }};
}

auto prepare_all_gather(Communicator::Impl& group, ConstData in, Data out) {
  check_same_type(in.type, out.type);
  check_count("the output of an all-gather", out.count, in.count * static_cast<size_t>(group.size()));
  return Prepared{digest_of(OperationKind::kAllGather, in.type, in.count), 0, [&group, in, out](const Call& call) {
                    if (group.host_shared) return group.host_shared->all_gather(call, in, out);
                    Messenger messenger = group.messenger(call);
                    const std::vector<size_t> counts(static_cast<size_t>(group.size()), in.count);
                    all_gather_by_messages(messenger, in, out, counts);
                  }};
}

/// All ranks must hold the same list.
uint64_t hash_of(std::span<const size_t> counts) {
  uint64_t hash = 0;
  for (const size_t count : counts) hash = (hash ^ count) * 0x9E3779B97F4A7C15ull + 1;
  return hash;
}

auto prepare_all_gather_v(Communicator::Impl& group, ConstData in, Data out, std::span<const size_t> counts) {
  check_same_type(in.type, out.type);
  check_count("the list of counts", counts.size(), static_cast<size_t>(group.size()));
  check_count("the input of this rank", in.count, counts[static_cast<size_t>(group.group.rank)]);
  check_count("the output of an all-gather", out.count, sum_of(counts));
  return Prepared{digest_of(OperationKind::kAllGatherV, in.type, out.count), hash_of(counts),
                  [&group, in, out, list = std::vector<size_t>(counts.begin(), counts.end())](const Call& call) {
                    if (group.host_shared) return group.host_shared->all_gather_v(call, in, out, list);
                    Messenger messenger = group.messenger(call);
                    all_gather_by_messages(messenger, in, out, list);
                  }};
}

auto prepare_reduce(Communicator::Impl& group, ConstData in, Data out, ReduceOp op, int root) {
  check_member("root", root, group.size());
  if (group.group.rank == root) {
    check_same_type(in.type, out.type);
    check_count("the output of the root of a reduce", out.count, in.count);
  }
  return Prepared{digest_of(OperationKind::kReduce, in.type, in.count, root, op), 0,
                  [&group, in, out, op, root](const Call& call) {
                    if (group.host_shared) return group.host_shared->reduce(call, in, out, op, root);
                    Messenger messenger = group.messenger(call);
                    reduce_by_messages(messenger, in, out, op, root);
                    if (group.group.rank == root)
                      finish(op, out.type, out.bytes, out.count, static_cast<size_t>(group.size()));
                  }};
}

auto prepare_reduce_scatter(Communicator::Impl& group, ConstData in, Data out, ReduceOp op) {
  check_same_type(in.type, out.type);
  check_count("the input of a reduce-scatter", in.count, out.count * static_cast<size_t>(group.size()));
  return Prepared{digest_of(OperationKind::kReduceScatter, in.type, out.count, -1, op), 0,
                  [&group, in, out, op](const Call& call) {
                    if (group.host_shared) return group.host_shared->reduce_scatter(call, in, out, op);
                    Messenger messenger = group.messenger(call);
                    reduce_scatter_by_messages(messenger, in, out, op);
                  }};
}

auto prepare_reduce_scatter_v(Communicator::Impl& group, ConstData in, Data out, std::span<const size_t> counts,
                              ReduceOp op) {
  check_same_type(in.type, out.type);
  check_count("the list of counts", counts.size(), static_cast<size_t>(group.size()));
  check_count("the output of this rank", out.count, counts[static_cast<size_t>(group.group.rank)]);
  check_count("the input of a reduce-scatter", in.count, sum_of(counts));
  return Prepared{digest_of(OperationKind::kReduceScatterV, in.type, in.count, -1, op), hash_of(counts),
                  [&group, in, out, op, list = std::vector<size_t>(counts.begin(), counts.end())](const Call& call) {
                    if (group.host_shared) return group.host_shared->reduce_scatter_v(call, in, out, list, op);
                    Messenger messenger = group.messenger(call);
                    reduce_scatter_v_by_messages(messenger, in, out, list, op);
                  }};
}

void run_all_reduce(Communicator::Impl& group, const Call& call, Data data, ReduceOp op) {
  if (group.size() == 1) return;
  if (call.digest.algorithm == Algorithm::kInPlace) return group.host_shared->all_reduce(call, data, op);
  Messenger messenger = group.messenger(call);
  switch (call.digest.algorithm) {
    case Algorithm::kSequential:
      all_reduce_sequential(messenger, data, op);
      break;
    case Algorithm::kServer:
      all_reduce_server(messenger, data, op);
      break;
    case Algorithm::kRing:
      all_reduce_ring(messenger, data, op);
      break;
    case Algorithm::kParallel:
      all_reduce_parallel(messenger, data, op);
      break;
    case Algorithm::kRecursiveHalving:
      all_reduce_recursive_halving(messenger, data, op);
      break;
    case Algorithm::kFarthestFirst:
      all_reduce_farthest_first(messenger, data, op);
      break;
    case Algorithm::kTree:
      all_reduce_tree(messenger, data, op);
      break;
    case Algorithm::kButterfly:
      all_reduce_butterfly(messenger, data, op);
      break;
    default:
      return all_reduce_ordered(messenger, data, op);  // divides, too
  }
  finish(op, data.type, data.bytes, data.count, static_cast<size_t>(group.size()));
}

auto prepare_all_reduce(Communicator& self, Data data, ReduceOp op, const CallOptions& options) {
  Communicator::Impl& group = self.impl();
  OperationDigest digest = digest_of(OperationKind::kAllReduce, data.type, data.count, -1, op);
  if (data.place == Place::kGpu) [[unlikely]] {
    digest.algorithm = options.ordered ? Algorithm::kOrdered : Algorithm::kAuto;
  } else {
    digest.algorithm = group.algorithm_for(data.num_bytes(), options);
    if (digest.algorithm == Algorithm::kTwoLevel) group.prepare_two_level(self, options);
  }
  return Prepared{digest, 0, [&group, data, op, options](const Call& call) {
                    if (call.digest.algorithm == Algorithm::kTwoLevel)
                      return all_reduce_two_level(group, call.fingerprint, data, op, options);
                    run_all_reduce(group, call, data, op);
                  }};
}

auto prepare_all_to_all(Communicator::Impl& group, ConstData in, Data out) {
  const size_t p = static_cast<size_t>(group.size());
  check_same_type(in.type, out.type);
  check_count("the output of an all-to-all", out.count, in.count);
  if (in.count % p != 0) {
    throw UsageError(
        fmt::format("the input of an all-to-all has {} elements, which do not divide by {} ranks", in.count, p),
        "use all_to_all_v for blocks of unequal size");
  }
  return Prepared{digest_of(OperationKind::kAllToAll, in.type, in.count / p), 0,
                  [&group, in, out, p](const Call& call) {
                    if (group.host_shared) return group.host_shared->all_to_all(call, in, out);
                    Messenger messenger = group.messenger(call);
                    const std::vector<size_t> counts(p, in.count / p);
                    all_to_all_by_messages(messenger, in, counts, out, counts);
                  }};
}

auto prepare_all_to_all_v(Communicator::Impl& group, ConstData in, std::span<const size_t> send_counts, Data out,
                          std::span<const size_t> recv_counts) {
  check_same_type(in.type, out.type);
  const size_t p = static_cast<size_t>(group.size());
  check_count("the list of counts to send", send_counts.size(), p);
  check_count("the list of counts to receive", recv_counts.size(), p);
  check_count("the input of an all-to-all", in.count, sum_of(send_counts));
  check_count("the output of an all-to-all", out.count, sum_of(recv_counts));
  const size_t me = static_cast<size_t>(group.group.rank);
  check_count("what this rank gets from itself in an all-to-all", recv_counts[me], send_counts[me]);
  return Prepared{digest_of(OperationKind::kAllToAllV, in.type, 0), 0,
                  [&group, in, out, sent = std::vector<size_t>(send_counts.begin(), send_counts.end()),
                   received = std::vector<size_t>(recv_counts.begin(), recv_counts.end())](const Call& call) {
                    if (group.host_shared) return group.host_shared->all_to_all_v(call, in, sent, out, received);
                    Messenger messenger = group.messenger(call);
                    all_to_all_by_messages(messenger, in, sent, out, received);
                  }};
}

/// What an operation works on, for the choice between host and GPU.
struct Operands {
  ConstData in;
  Data out;
  std::span<const size_t> send_counts = {}, recv_counts = {};
};

void check_same_place(Place a, Place b) {
  if (a == b) return;
  throw UsageError("one operand is in host memory and one in GPU memory", "copy one of them, or mark both Place::kGpu");
}

/// A scatter's input, and the output of a gather or a reduce, count on the root only.
bool is_on_gpu(const Communicator::Impl& group, const OperationDigest& digest, const Operands& operands) {
  const Place first = digest.kind == OperationKind::kScatter ? operands.out.place : operands.in.place;
  const bool one_counts = digest.kind == OperationKind::kScatter || digest.kind == OperationKind::kGather ||
                          digest.kind == OperationKind::kReduce;
  if (!one_counts || group.group.rank == digest.root) check_same_place(operands.in.place, operands.out.place);
  return first == Place::kGpu;
}

GpuRequest request_for(const OperationDigest& digest, const Operands& operands, const CallOptions& options) {
  return {digest.kind,
          operands.in,
          operands.out,
          digest.op,
          digest.root,
          options.ordered,
          {operands.send_counts.begin(), operands.send_counts.end()},
          {operands.recv_counts.begin(), operands.recv_counts.end()}};
}

template <typename Body>
void run(Communicator::Impl& group, const Prepared<Body>& prepared, const Operands& operands,
         const CallOptions& options) {
  if (is_on_gpu(group, prepared.digest, operands)) [[unlikely]] {
    return group.run_on_gpu(prepared.digest, prepared.extra, request_for(prepared.digest, operands, options), options);
  }
  group.run(prepared.digest, prepared.extra, options, prepared.body);
}

template <typename Body>
Handle start(Communicator::Impl& group, const Prepared<Body>& prepared, const Operands& operands,
             const CallOptions& options) {
  if (is_on_gpu(group, prepared.digest, operands)) [[unlikely]] {
    return group.start_on_gpu(prepared.digest, prepared.extra, request_for(prepared.digest, operands, options),
                              options);
  }
  return group.start(prepared.digest, prepared.extra, options, prepared.body);
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Communicator::~Communicator() = default;

int Communicator::rank() const { return impl_->group.rank; }
int Communicator::size() const { return impl_->size(); }
const std::string& Communicator::name() const { return impl_->group.name; }
int Communicator::world_rank(int group_rank) const {
  check_member("rank", group_rank, size());
  return impl_->group.world_ranks[static_cast<size_t>(group_rank)];
}

Buffer Communicator::allocate(size_t num_bytes) {
  auto context = impl_->context;
  void* memory = context->space->allocate(num_bytes);
  return Buffer(std::shared_ptr<void>(memory, [context](void* p) { context->space->release(p); }), num_bytes);
}

Buffer Communicator::allocate_gpu(size_t num_bytes) { return impl_->gpu_operations().allocate(num_bytes); }

void Communicator::send(ConstData data, int to, uint32_t tag, const CallOptions& options) {
  check_member("destination", to, size());
  if (data.place == Place::kGpu) [[unlikely]] {
    const auto task = impl_->start_gpu_message({true, data, {}, to, tag}, options);
    return impl_->await_tasks(std::span(&task, 1));
  }
  const auto ticket = impl_->start_message(true, data, {}, to, tag);
  impl_->wait_for(std::span(&ticket, 1), ticket->header.digest, options);
}

void Communicator::recv(Data data, int from, uint32_t tag, const CallOptions& options) {
  check_member("source", from, size());
  if (data.place == Place::kGpu) [[unlikely]] {
    const auto task = impl_->start_gpu_message({false, {}, data, from, tag}, options);
    return impl_->await_tasks(std::span(&task, 1));
  }
  const auto ticket = impl_->start_message(false, {}, data, from, tag);
  impl_->wait_for(std::span(&ticket, 1), ticket->header.digest, options);
}

void Communicator::send_recv(ConstData out, int to, Data in, int from, uint32_t tag, const CallOptions& options) {
  check_member("destination", to, size());
  check_member("source", from, size());
  check_same_place(out.place, in.place);
  if (in.place == Place::kGpu) [[unlikely]] {
    const std::shared_ptr<GpuTask> tasks[] = {impl_->start_gpu_message({false, {}, in, from, tag}, options),
                                              impl_->start_gpu_message({true, out, {}, to, tag}, options)};
    return impl_->await_tasks(tasks);
  }
  const Endpoint::Ticket tickets[] = {impl_->start_message(false, {}, in, from, tag),
                                      impl_->start_message(true, out, {}, to, tag)};
  impl_->wait_for(tickets, tickets[0]->header.digest, options);
}

Handle Communicator::start_send(ConstData data, int to, uint32_t tag, const CallOptions& options) {
  check_member("destination", to, size());
  if (data.place == Place::kGpu) [[unlikely]] {
    const auto task = impl_->start_gpu_message({true, data, {}, to, tag}, options);
    return impl_->queue.add(task, impl_->timeout_of(options), {impl_->context, task->digest, task->peer});
  }
  return impl_->hand_over(impl_->start_message(true, data, {}, to, tag), options);
}

Handle Communicator::start_recv(Data data, int from, uint32_t tag, const CallOptions& options) {
  check_member("source", from, size());
  if (data.place == Place::kGpu) [[unlikely]] {
    const auto task = impl_->start_gpu_message({false, {}, data, from, tag}, options);
    return impl_->queue.add(task, impl_->timeout_of(options), {impl_->context, task->digest, task->peer});
  }
  return impl_->hand_over(impl_->start_message(false, {}, data, from, tag), options);
}

void Communicator::barrier(const CallOptions& options) { run(*impl_, prepare_barrier(*impl_), {}, options); }
void Communicator::broadcast(Data data, int root, const CallOptions& options) {
  run(*impl_, prepare_broadcast(*impl_, data, root), {data, data}, options);
}
void Communicator::scatter(ConstData in, Data out, int root, const CallOptions& options) {
  run(*impl_, prepare_scatter(*impl_, in, out, root), {in, out}, options);
}
void Communicator::gather(ConstData in, Data out, int root, const CallOptions& options) {
  run(*impl_, prepare_gather(*impl_, in, out, root), {in, out}, options);
}
void Communicator::all_gather(ConstData in, Data out, const CallOptions& options) {
  run(*impl_, prepare_all_gather(*impl_, in, out), {in, out}, options);
}
void Communicator::all_gather_v(ConstData in, Data out, std::span<const size_t> counts, const CallOptions& options) {
  run(*impl_, prepare_all_gather_v(*impl_, in, out, counts), {in, out, {}, counts}, options);
}
void Communicator::reduce(ConstData in, Data out, ReduceOp op, int root, const CallOptions& options) {
  run(*impl_, prepare_reduce(*impl_, in, out, op, root), {in, out}, options);
}
void Communicator::reduce_scatter(ConstData in, Data out, ReduceOp op, const CallOptions& options) {
  run(*impl_, prepare_reduce_scatter(*impl_, in, out, op), {in, out}, options);
}
void Communicator::reduce_scatter_v(ConstData in, Data out, std::span<const size_t> counts, ReduceOp op,
                                    const CallOptions& options) {
  run(*impl_, prepare_reduce_scatter_v(*impl_, in, out, counts, op), {in, out, counts, {}}, options);
}
void Communicator::all_reduce(Data data, ReduceOp op, const CallOptions& options) {
  run(*impl_, prepare_all_reduce(*this, data, op, options), {data, data}, options);
}
void Communicator::all_to_all(ConstData in, Data out, const CallOptions& options) {
  run(*impl_, prepare_all_to_all(*impl_, in, out), {in, out}, options);
}
void Communicator::all_to_all_v(ConstData in, std::span<const size_t> send_counts, Data out,
                                std::span<const size_t> recv_counts, const CallOptions& options) {
  run(*impl_, prepare_all_to_all_v(*impl_, in, send_counts, out, recv_counts), {in, out, send_counts, recv_counts},
      options);
}

Handle Communicator::start_barrier(const CallOptions& options) {
  return start(*impl_, prepare_barrier(*impl_), {}, options);
}
Handle Communicator::start_broadcast(Data data, int root, const CallOptions& options) {
  return start(*impl_, prepare_broadcast(*impl_, data, root), {data, data}, options);
}
Handle Communicator::start_scatter(ConstData in, Data out, int root, const CallOptions& options) {
  return start(*impl_, prepare_scatter(*impl_, in, out, root), {in, out}, options);
}
Handle Communicator::start_gather(ConstData in, Data out, int root, const CallOptions& options) {
  return start(*impl_, prepare_gather(*impl_, in, out, root), {in, out}, options);
}
Handle Communicator::start_all_gather(ConstData in, Data out, const CallOptions& options) {
  return start(*impl_, prepare_all_gather(*impl_, in, out), {in, out}, options);
}
Handle Communicator::start_all_gather_v(ConstData in, Data out, std::span<const size_t> counts,
                                        const CallOptions& options) {
  return start(*impl_, prepare_all_gather_v(*impl_, in, out, counts), {in, out, {}, counts}, options);
}
Handle Communicator::start_reduce(ConstData in, Data out, ReduceOp op, int root, const CallOptions& options) {
  return start(*impl_, prepare_reduce(*impl_, in, out, op, root), {in, out}, options);
}
Handle Communicator::start_reduce_scatter(ConstData in, Data out, ReduceOp op, const CallOptions& options) {
  return start(*impl_, prepare_reduce_scatter(*impl_, in, out, op), {in, out}, options);
}
Handle Communicator::start_reduce_scatter_v(ConstData in, Data out, std::span<const size_t> counts, ReduceOp op,
                                            const CallOptions& options) {
  return start(*impl_, prepare_reduce_scatter_v(*impl_, in, out, counts, op), {in, out, counts, {}}, options);
}
Handle Communicator::start_all_reduce(Data data, ReduceOp op, const CallOptions& options) {
  return start(*impl_, prepare_all_reduce(*this, data, op, options), {data, data}, options);
}
Handle Communicator::start_all_to_all(ConstData in, Data out, const CallOptions& options) {
  return start(*impl_, prepare_all_to_all(*impl_, in, out), {in, out}, options);
}
Handle Communicator::start_all_to_all_v(ConstData in, std::span<const size_t> send_counts, Data out,
                                        std::span<const size_t> recv_counts, const CallOptions& options) {
  return start(*impl_, prepare_all_to_all_v(*impl_, in, send_counts, out, recv_counts),
               {in, out, send_counts, recv_counts}, options);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, const CallOptions& options) {
  Impl& parent = *impl_;
  const size_t p = static_cast<size_t>(size());
  std::vector<int32_t> choices(2 * p);
  const int32_t mine[] = {color, key};
  all_gather(ConstData(mine, 2, DataType::kInt32), choices, options);
  ++parent.splits;

  Impl::Group group;
  std::vector<int> members;  // group ranks of the parent
  if (color != -1) {
    for (int r = 0; r < size(); ++r) {
      if (choices[2 * static_cast<size_t>(r)] == color) members.push_back(r);
    }
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return choices[2 * static_cast<size_t>(a) + 1] < choices[2 * static_cast<size_t>(b) + 1];
    });
    for (const int member : members) group.world_ranks.push_back(world_rank(member));
  }
  RankContext& context = *parent.context;
  context.sweep_retired();
  const auto shares_memory = [&](int world) { return context.same_host(world, context.rank); };
  const bool one_host = std::all_of(group.world_ranks.begin(), group.world_ranks.end(), shares_memory);

  // The first member of a host has the board; everybody on a host with others has a mailbox.
  uint64_t places[2] = {0, 0};
  const bool has_neighbours = std::count_if(group.world_ranks.begin(), group.world_ranks.end(), shares_memory) > 1;
  const int count = static_cast<int>(members.size());
  // A rank that has no memory left, or cannot reach a peer's, tells the others, who are waiting for it.
  const auto telling = [&](auto body) {
    try {
      body();
    } catch (...) {
      OperationDigest digest = digest_of(OperationKind::kAllGather, DataType::kInt64, 2);
      digest.sequence = parent.sequence + 1;
      parent.fail(digest, Clock::now());
    }
  };
  if (has_neighbours) {
    telling([&] {
      void* mailbox = context.space->allocate(Mailbox::num_bytes(count));
      group.owned_memory.push_back(mailbox);
      places[0] = *context.space->place_of(mailbox, 1);
      if (!one_host || members.front() != rank()) return;
      void* seats = context.space->allocate(Board::num_bytes(count));
      group.owned_memory.push_back(seats);
      places[1] = *context.space->place_of(seats, 1);
    });
  }
  std::vector<int64_t> all_places(2 * p);
  all_gather(ConstData(places, 2, DataType::kInt64), all_places, options);
  if (color == -1) {
    if (parent.gpu) parent.gpu->split(nullptr, color, key);
    return nullptr;
  }

  const auto place = [&](int member, int which) {
    return static_cast<uint64_t>(all_places[2 * static_cast<size_t>(member) + static_cast<size_t>(which)]);
  };
  group.has_neighbours = has_neighbours;
  for (const int member : members) group.mailboxes.push_back(place(member, 0));
  if (one_host && has_neighbours) {
    telling([&] { group.seats = context.space->at(group.world_ranks.front(), place(members.front(), 1)); });
  }
  group.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  group.name = fmt::format("{}/{}.{}", name(), parent.splits, color);
  group.id = fingerprint({}, parent.group.id, parent.splits << 32 | static_cast<uint32_t>(color));
  auto child = std::make_unique<Communicator>(std::make_unique<Impl>(parent.context, std::move(group)));
  if (parent.gpu) child->impl().gpu = parent.gpu->split(child.get(), color, key);
  return child;
}

std::unique_ptr<Communicator> make_world_communicator(std::shared_ptr<RankContext> context) {
  Communicator::Impl::Group group;
  group.id = 1;
  group.name = "world";
  group.rank = context->rank;
  group.world_ranks.resize(static_cast<size_t>(context->size));
  std::iota(group.world_ranks.begin(), group.world_ranks.end(), 0);
  group.has_neighbours = context->hosts.local_size(context->rank) > 1;
  if (context->hosts.num_hosts() == 1 && group.has_neighbours) group.seats = context->space->fixed_area(0);
  return std::make_unique<Communicator>(std::make_unique<Communicator::Impl>(std::move(context), std::move(group)));
}

Traffic Communicator::traffic() const {
  Traffic total = impl_->endpoint->traffic();
  if (!impl_->gpu) return total;
  const Traffic more = impl_->gpu->traffic();
  total.messages_sent += more.messages_sent;
  total.messages_received += more.messages_received;
  total.bytes_sent += more.bytes_sent;
  total.bytes_received += more.bytes_received;
  total.rounds += more.rounds;
  return total;
}
Algorithm Communicator::choose(size_t num_bytes, bool ordered) const {
  CallOptions options;
  options.ordered = ordered;
  return impl_->algorithm_for(num_bytes, options);
}
const FlightRecorder& Communicator::recorder() const { return impl_->recorder; }

}  // namespace trireme
