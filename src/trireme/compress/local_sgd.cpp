#include "trireme/compress/local_sgd.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/compress/exchange.h"

namespace trireme {

void MeetingPlan::check() const {
  if (every == 0) {
    throw UsageError("ranks that step alone would meet every 0 steps",
                     "1 is after every step; local SGD takes 4 to 64");
  }
}

bool MeetingPlan::meets_after(uint64_t step) const {
  return step < local_after || (step + 1 - local_after) % every == 0;
}

LocalSgd::LocalSgd(Communicator& comm, const MeetingPlan& plan) : comm_(comm), plan_(plan) { plan_.check(); }

bool LocalSgd::after_step(uint64_t step, std::span<float> parameters) {
  if (!plan_.meets_after(step)) return false;
  comm_.all_reduce(parameters, ReduceOp::kAverage);
  bytes_sent_ += dense_sum_bytes(parameters.size_bytes(), comm_.size());
  return true;
}

void diloco_outer_step(float lr, float momentum_factor, std::span<const float> delta, std::span<float> momentum,
                       std::span<float> anchor) {
  for (size_t i = 0; i < anchor.size(); ++i) {
    momentum[i] = momentum_factor * momentum[i] + delta[i];
    anchor[i] -= lr * (delta[i] + momentum_factor * momentum[i]);
  }
}

DiLoCo::DiLoCo(Communicator& comm, const DiLoCoOptions& options, GroupLayout layout, std::span<const float> parameters)
    : comm_(comm),
      options_(options),
      layout_(checked(std::move(layout))),
      anchor_(parameters.begin(), parameters.end()),
      momentum_(parameters.size()) {
  options_.plan.check();
  if (layout_.count != parameters.size()) {
    throw UsageError(fmt::format("DiLoCo has {} parameters, but a layout of {}", parameters.size(), layout_.count));
  }
  if (!(options_.momentum >= 0 && options_.momentum < 1)) {
    throw UsageError(fmt::format("DiLoCo's outer momentum is {}", options_.momentum), "allowed: from 0 to less than 1");
  }
  if (!(options_.lr > 0)) {
    throw UsageError(fmt::format("DiLoCo's outer learning rate is {}", options_.lr),
                     "allowed: more than 0; 0.7 is usual");
  }
  if (!options_.format) return;
  const bool keeps_rest = !is_stochastic(*options_.format);  // which is right on average
  blocks_.emplace(comm, *options_.format, anchor_.size(), keeps_rest, "diloco/");
}

void DiLoCo::average(std::span<float> delta, uint64_t step) {
  if (!blocks_) {
    comm_.all_reduce(delta, ReduceOp::kAverage);
    bytes_sent_ += dense_sum_bytes(delta.size_bytes(), comm_.size());
    return;
  }
  const RandomKey own = random_key(options_.seed, fmt::format("diloco/rank {}", comm_.rank()), step);
  const RandomKey of_sum = random_key(options_.seed, "diloco/sum", step);
  blocks_->sum(delta, own, of_sum, 1.f / static_cast<float>(comm_.size()));
}

bool DiLoCo::after_step(uint64_t step, std::span<float> parameters) {
  if (parameters.size() != anchor_.size()) {
    throw UsageError(fmt::format("DiLoCo began with {} parameters and now has {}", anchor_.size(), parameters.size()));
  }
  if (!options_.plan.meets_after(step)) return false;
  std::vector<float> delta(anchor_.size());
  for (size_t i = 0; i < delta.size(); ++i) delta[i] = anchor_[i] - parameters[i];
  average(delta, step);
  diloco_outer_step(options_.lr, options_.momentum, delta, momentum_, anchor_);
  std::copy(anchor_.begin(), anchor_.end(), parameters.begin());
  return true;
}

StatePieces DiLoCo::save() const {
  StatePieces pieces;
  save_group(layout_, "diloco/anchor/", StateKind::kReplicated, anchor_, 0, pieces);
  save_group(layout_, "diloco/momentum/", StateKind::kReplicated, momentum_, 0, pieces);
  if (blocks_) blocks_->save(layout_, pieces);
  return pieces;
}

void DiLoCo::load(std::span<const StatePieces> by_rank) {
  const int rank = comm_.rank(), size = comm_.size();
  load_group(layout_, "diloco/anchor/", by_rank, rank, size, anchor_, 0);
  load_group(layout_, "diloco/momentum/", by_rank, rank, size, momentum_, 0);
  if (blocks_) blocks_->load(layout_, by_rank);
}

}  // namespace trireme
