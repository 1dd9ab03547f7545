#include "trireme/runtime/group_reducer.h"

#include <algorithm>

#include "trireme/tensor/device.h"

namespace trireme {
namespace {

std::vector<size_t> counts_of(const std::vector<int64_t>& cuts) {
  std::vector<size_t> counts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) counts.push_back(static_cast<size_t>(cuts[i + 1] - cuts[i]));
  return counts;
}

/// This rank's part of a sharded group.
torch::Tensor part_of(const torch::Tensor& whole, const ShardedSum& sharded) {
  const auto own = static_cast<size_t>(sharded.shard_group->rank());
  return whole.narrow(0, (*sharded.cuts)[own], (*sharded.cuts)[own + 1] - (*sharded.cuts)[own]);
}

/// The buffer of a group, made on first use.
template <typename Make>
torch::Tensor buffer_of(std::vector<torch::Tensor>& buffers, int group, Make make) {
  const auto index = static_cast<size_t>(group);
  if (buffers.size() <= index) buffers.resize(index + 1);
  if (!buffers[index].defined()) buffers[index] = make();
  return buffers[index];
}

}  // namespace

ShardedSum sharded_sum(GradientStore& store, int group, const torch::Tensor& whole, Communicator& shard_group) {
  ShardedSum sum;
  sum.shard_group = &shard_group;
  sum.cuts = &store.cuts(group);
  sum.shard = store.shard(group);
  sum.on_done = [&store, whole] { store.give_back(whole); };
  return sum;
}

GroupReducer::GroupReducer(Communicator* comm, CrossRankSum across, torch::ScalarType travel_type, bool ordered)
    : comm_(comm), across_(std::move(across)), travel_type_(travel_type), ordered_(ordered) {}

void GroupReducer::start(int group, std::vector<torch::Tensor> slots, bool may_shorten, ShardedSum sharded) {
  torch::NoGradGuard no_grad;
  Pending pending;
  pending.slots = std::move(slots);
  pending.sharded = std::move(sharded);
  if (hook_) {
    add_own_partials(pending.slots);
    pending.handle = hook_(group, pending.slots[0], *comm_);
    pending.has_whole = true;
  } else if (compressor_ && may_shorten) {
    if (!pending.sharded.single) add_own_partials(pending.slots);
    start_compressed(group, pending.slots[0]);
    pending.has_whole = true;
  } else if (across_.direct || pending.sharded.single) {
    pending.handle = start_direct(group, pending, may_shorten);
  } else {
    pending.has_partials = true;
  }
  pending_.push_back(std::move(pending));
}

/// Starts the compressor, which works in the memory of the values.
void GroupReducer::start_compressed(int group, const torch::Tensor& values) {
  compressor_->start(group, {values.data_ptr<float>(), static_cast<size_t>(values.numel())}, step_,
                     compressor_->processor().after(current_stream(values.device())));
}

Handle GroupReducer::start_direct(int group, Pending& pending, bool may_shorten) {
  torch::Tensor values = pending.slots[0];
  const bool shortened = may_shorten && values.scalar_type() == torch::kFloat32 && travel_type_ != torch::kFloat32;
  if (shortened) {
    const auto shorter = values.options().dtype(travel_type_);
    const torch::Tensor buffer =
        buffer_of(travel_buffers_, group, [&] { return host_shared_zeros(comm_, values.numel(), shorter); });
    values = pending.travelling = buffer.copy_(values);
  }
  CallOptions options = call_options(values.device());
  options.ordered = ordered_;
  bytes_ += values.nbytes();
  const ShardedSum& sharded = pending.sharded;
  if (!sharded.cuts) return comm_->start_all_reduce(data_of(values), ReduceOp::kSum, options);
  torch::Tensor out = sharded.shard;
  if (shortened) out = pending.travelling = part_of(values, sharded);
  if (sharded.add && !shortened) out = pending.travelling = torch::empty_like(sharded.shard);
  return sharded.shard_group->start_reduce_scatter_v(data_of(values), data_of(out), counts_of(*sharded.cuts),
                                                     ReduceOp::kSum, options);
}

void GroupReducer::finish() {
  if (compressor_) compressor_->finish();
  while (finish_first()) {
  }
}

bool GroupReducer::finish_first() {
  if (pending_.empty()) return false;
  if (compressor_ && pending_.front().has_whole) compressor_->finish();
  Pending first = std::move(pending_.front());
  pending_.pop_front();
  complete(first);
  return true;
}

size_t GroupReducer::buffer_bytes() const {
  size_t sum = 0;
  for (const torch::Tensor& buffer : travel_buffers_) sum += buffer.defined() ? buffer.nbytes() : 0;
  return sum;
}

void GroupReducer::complete(Pending& pending) {
  torch::NoGradGuard no_grad;
  const ShardedSum& sharded = pending.sharded;
  if (pending.handle.valid()) pending.handle.wait_on(current_stream(pending.slots[0].device()));
  if (pending.has_partials) sum_partials(pending);
  torch::Tensor sum = pending.travelling;
  if (!sharded.cuts) {
    if (sum.defined()) pending.slots[0].copy_(sum);
    return;
  }
  if (pending.has_whole) {
    sum = part_of(sum.defined() ? sum : pending.slots[0], sharded);
  } else if (sharded.copies) {
    const torch::Tensor& own = sum.defined() ? sum : sharded.shard;
    sharded.copies->all_reduce(data_of(own), ReduceOp::kSum, call_options(own.device()));
  }
  torch::Tensor shard = sharded.shard;
  if (sum.defined() && sum.data_ptr() != shard.data_ptr()) sharded.add ? shard.add_(sum) : shard.copy_(sum);
  if (sharded.on_done) sharded.on_done();
}

/// Adds up this rank's partial sums: a hook or compressor needs a single one, so it gives up the tree if a rank has
/// several.
void GroupReducer::add_own_partials(std::vector<torch::Tensor>& slots) const {
  if (across_.direct) return;
  const int count = across_.partials_of_rank[static_cast<size_t>(comm_->rank())];
  for (int slot = 1; slot < count; ++slot) slots[0].add_(slots[static_cast<size_t>(slot)]);
}

/// Each rank sums one part of the group along the tree ([Note: Leaves]): its own shard if the group is sharded.
void GroupReducer::sum_partials(Pending& pending) {
  const std::vector<torch::Tensor>& slots = pending.slots;
  const ShardedSum& sharded = pending.sharded;
  const int num_ranks = comm_->size();
  const int64_t count = slots[0].numel();
  std::vector<int64_t> cuts;
  for (int64_t rank = 0; rank <= num_ranks; ++rank) cuts.push_back(count * rank / num_ranks);
  const std::vector<size_t> parts = counts_of(sharded.cuts ? *sharded.cuts : cuts);
  const auto own = static_cast<int64_t>(parts[static_cast<size_t>(comm_->rank())]);
  const std::vector<size_t> own_everywhere(static_cast<size_t>(num_ranks), static_cast<size_t>(own));
  const int most = *std::max_element(across_.partials_of_rank.begin(), across_.partials_of_rank.end());

  const CallOptions options = call_options(slots[0].device());
  // Ranks with fewer partial sums than others send one of them again, which nobody adds.
  torch::Tensor arrived = torch::empty({most, num_ranks, own}, slots[0].options());
  for (int k = 0; k < most; ++k) {
    const torch::Tensor& slot = slots[std::min(static_cast<size_t>(k), slots.size() - 1)];
    comm_->all_to_all_v(data_of(slot), parts, data_of(arrived[k]), own_everywhere, options);
    bytes_ += slot.nbytes();
  }
  std::vector<torch::Tensor> partials;
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int k = 0; k < across_.partials_of_rank[static_cast<size_t>(rank)]; ++k) partials.push_back(arrived[k][rank]);
  }
  for (const Addition& addition : across_.additions) {
    partials[static_cast<size_t>(addition.into)].add_(partials[static_cast<size_t>(addition.from)]);
  }
  if (sharded.cuts) {
    pending.travelling = partials[0];
  } else {
    comm_->all_gather_v(data_of(partials[0]), data_of(slots[0]), parts, options);
  }
}

}  // namespace trireme
