#include "trireme/train/local_steps.h"

#include <algorithm>
#include <cmath>

#include "trireme/compress/adasum.h"
#include "trireme/compress/exchange.h"

namespace trireme {

void add_own_partials(const ModelPart& part, const Program& program, int replica) {
  if (program.across.direct) return;
  const torch::NoGradGuard no_grad;
  for (const ModelPart::StagePart& stage : part.stages()) {
    GradientStore& store = *stage.gradients;
    for (int slot = 1; slot < program.across.partials_of_rank[static_cast<size_t>(replica)]; ++slot) {
      for (int group = 0; group < store.num_groups(); ++group) store.add_slot(group, 0, slot);
    }
  }
}

size_t combine_by_adasum(const ModelPart& part, Communicator& replicas) {
  const GradientStore& store = *part.stages()[0].gradients;
  size_t bytes = 0;
  int group = 0;
  for (GroupLayout& layout : store.group_layouts()) {
    const torch::Tensor values = store.group(0, group++);
    bytes +=
        adasum(replicas, checked(std::move(layout)), {values.data_ptr<float>(), static_cast<size_t>(values.numel())});
  }
  return bytes;
}

LocalSteps::LocalSteps(const Config& config, Communicator& replicas, ParameterStore& parameters,
                       const Optimizer& optimizer)
    : config_(config),
      comm_(replicas),
      parameters_(parameters),
      optimizer_(optimizer),
      plan_{static_cast<uint64_t>(config.local.every), static_cast<uint64_t>(config.local.after)},
      gossip_(replicas, GossipGraph::kExponential) {
  restart();
}

double LocalSteps::mean_norm(double own) const {
  std::vector<double> square = {own * own};
  comm_.all_reduce(square);
  return std::sqrt(square[0] / comm_.size());
}

/// Names and places of what lies in flat_.
GroupLayout LocalSteps::layout() const {
  GroupLayout layout{"weights", 0, {}};
  for (const ParameterStore::Share& share : parameters_.shares()) {
    const auto count = static_cast<size_t>(share.count);
    layout.parts.push_back({parameters_.entries()[share.entry].name, layout.count, 1, count});
    layout.count += count;
  }
  return layout;
}

void LocalSteps::take(const OfShare& of_share) {
  flat_.clear();
  for (size_t i = 0; i < parameters_.shares().size(); ++i) {
    const torch::Tensor from = of_share(i);
    const float* values = from.const_data_ptr<float>();
    flat_.insert(flat_.end(), values, values + from.numel());
  }
}

void LocalSteps::give(const OfShare& of_share) const {
  const float* from = flat_.data();
  for (size_t i = 0; i < parameters_.shares().size(); ++i) {
    const torch::Tensor to = of_share(i);
    std::copy_n(from, to.numel(), to.data_ptr<float>());
    from += to.numel();
  }
}

void LocalSteps::average(std::span<float> values) {
  comm_.all_reduce(values, ReduceOp::kAverage);
  bytes_sent_ += dense_sum_bytes(values.size_bytes(), comm_.size());
}

void LocalSteps::meet(int64_t step, bool all_with_all) {
  const OfShare masters = [this](size_t share) { return parameters_.shares()[share].master; };
  take(masters);
  const bool gossips = config_.local.method == "gossip" && !all_with_all;
  if (gossips) {
    gossip_.mix(flat_, round_++);
  } else if (diloco_) {
    diloco_->after_step(static_cast<uint64_t>(step), flat_);
  } else {
    average(flat_);
  }
  give(masters);
  parameters_.publish();
  weights_differ_ = gossips;
  ++num_meetings_;
}

void LocalSteps::after_step(int64_t step) {
  last_step_ = step;
  weights_differ_ = moments_differ_ = true;
  if (plan_.meets_after(static_cast<uint64_t>(step))) meet(step, /*all_with_all=*/false);
}

void LocalSteps::settle() {
  if (weights_differ_) meet(last_step_, /*all_with_all=*/true);
  if (!moments_differ_) return;
  for (const Optimizer::Kind& kind : optimizer_.state()) {
    take(kind.of_share);
    average(flat_);
    give(kind.of_share);
  }
  moments_differ_ = false;
  round_ = 0;
}

void LocalSteps::restart() {
  weights_differ_ = moments_differ_ = false;
  round_ = 0;
  if (config_.local.method != "diloco") return;
  take([this](size_t share) { return parameters_.shares()[share].master; });
  DiLoCoOptions options;
  options.plan = {1, 0};  // this plan decides, and settle()
  options.lr = static_cast<float>(config_.local.outer_lr);
  options.momentum = static_cast<float>(config_.local.outer_momentum);
  options.format = format_named(config_.local.format);
  options.seed = static_cast<uint64_t>(config_.train.seed);
  diloco_.emplace(comm_, options, layout(), flat_);
}

void LocalSteps::load(std::span<const StatePieces> by_replica) {
  const bool has_some = std::any_of(by_replica.begin(), by_replica.end(), [](const StatePieces& pieces) {
    return std::any_of(pieces.begin(), pieces.end(),
                       [](const StatePiece& piece) { return piece.name.starts_with("diloco/"); });
  });
  if (diloco_ && has_some) diloco_->load(by_replica);  // else the checkpoint is of another way to train
}

}  // namespace trireme
