#include "trireme/runtime/group_reducer.h"

#include <algorithm>

#include "trireme/tensor/device.h"

namespace trireme {

GroupReducer::GroupReducer(Communicator* comm, CrossRankSum across, torch::ScalarType travel_type, bool ordered)
    : comm_(comm), across_(std::move(across)), travel_type_(travel_type), ordered_(ordered) {}

torch::Tensor GroupReducer::travel_buffer(int group, const torch::Tensor& values) {
  const auto index = static_cast<size_t>(group);
  if (travel_buffers_.size() <= index) travel_buffers_.resize(index + 1);
  if (!travel_buffers_[index].defined()) {
    travel_buffers_[index] = shared_zeros(comm_, values.numel(), values.options().dtype(travel_type_));
  }
  return travel_buffers_[index];
}

void GroupReducer::start(int group, std::vector<torch::Tensor> slots, bool may_shorten) {
  torch::NoGradGuard no_grad;
  Pending pending;
  if (hook_) {
    add_own_partials(slots);
    pending.handle = hook_(group, slots[0], *comm_);
  } else if (compressor_ && may_shorten) {
    add_own_partials(slots);
    compressor_->start(group, {slots[0].data_ptr<float>(), static_cast<size_t>(slots[0].numel())}, step_);
  } else if (across_.direct) {
    torch::Tensor values = slots[0];
    const bool shortened = may_shorten && values.scalar_type() == torch::kFloat32 && travel_type_ != torch::kFloat32;
    if (shortened) values = pending.travelling = travel_buffer(group, values).copy_(slots[0]);
    CallOptions options = call_options(values.device());
    options.ordered = ordered_;
    pending.handle = comm_->start_all_reduce(data_of(values), ReduceOp::kSum, options);
    bytes_ += values.nbytes();
  } else {
    pending.has_partials = true;
  }
  pending.slots = std::move(slots);
  pending_.push_back(std::move(pending));
}

void GroupReducer::finish() {
  torch::NoGradGuard no_grad;
  std::vector<Pending> all = std::exchange(pending_, {});
  if (compressor_) compressor_->finish();
  for (Pending& pending : all) {
    if (pending.handle.valid()) pending.handle.wait_on(current_stream(pending.slots[0].device()));
    if (pending.has_partials) sum_partials(pending.slots);
    if (pending.travelling.defined()) pending.slots[0].copy_(pending.travelling);
  }
}

/// A hook or a compressor gets one sum, so it gives up the tree where a rank has several.
void GroupReducer::add_own_partials(std::vector<torch::Tensor>& slots) const {
  if (across_.direct) return;
  const int count = across_.partials_of_rank[static_cast<size_t>(comm_->rank())];
  for (int slot = 1; slot < count; ++slot) slots[0].add_(slots[static_cast<size_t>(slot)]);
}

/// Each rank sums one part of the group, along the tree: [Note: Leaves].
void GroupReducer::sum_partials(std::vector<torch::Tensor>& slots) {
  const int num_ranks = comm_->size();
  const int64_t count = slots[0].numel();
  std::vector<size_t> parts(static_cast<size_t>(num_ranks));
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    parts[static_cast<size_t>(rank)] = static_cast<size_t>(count * (rank + 1) / num_ranks - count * rank / num_ranks);
  }
  const auto own = static_cast<int64_t>(parts[static_cast<size_t>(comm_->rank())]);
  const std::vector<size_t> own_everywhere(static_cast<size_t>(num_ranks), static_cast<size_t>(own));
  const int most = *std::max_element(across_.partials_of_rank.begin(), across_.partials_of_rank.end());

  const CallOptions options = call_options(slots[0].device());
  // Ranks with fewer partial sums than others send one of them again; nobody adds it.
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
  comm_->all_gather_v(data_of(partials[0]), data_of(slots[0]), parts, call_options(slots[0].device()));
}

}  // namespace trireme
