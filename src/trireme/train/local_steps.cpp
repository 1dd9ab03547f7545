#include "trireme/train/local_steps.h"

#include <algorithm>
#include <cmath>

#include "trireme/compress/adasum.h"
#include "trireme/compress/exchange.h"
#include "trireme/tensor/device.h"

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

AdasumStep::AdasumStep(const ModelPart& part, Communicator& replicas)
    : store_(*part.stages()[0].gradients),
      comm_(replicas),
      own_processor_(make_processor(store_.device())),
      processor_(own_processor_ ? *own_processor_ : host_processor()),
      layouts_(store_.group_layouts()) {
  size_t longest = 0;
  for (const GroupLayout& layout : layouts_) longest = std::max(longest, layout.count);
  scratch_.emplace(processor_, longest);
}

void AdasumStep::combine() {
  const std::function<void()> wait = processor_.after(current_stream(store_.device()));
  if (wait) wait();
  for (size_t i = 0; i < layouts_.size(); ++i) {
    const torch::Tensor values = store_.group(0, static_cast<int>(i));
    bytes_sent_ += adasum(comm_, layouts_[i], {values.data_ptr<float>(), static_cast<size_t>(values.numel())},
                          scratch_->span(), processor_);
  }
}

LocalSteps::LocalSteps(const Config& config, Communicator& replicas, ParameterStore& parameters,
                       const Optimizer& optimizer)
    : config_(config),
      comm_(replicas),
      parameters_(parameters),
      optimizer_(optimizer),
      plan_{static_cast<uint64_t>(config.local.every), static_cast<uint64_t>(config.local.after)} {
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
    const torch::Tensor from = of_share(i).cpu();
    const float* values = from.const_data_ptr<float>();
    flat_.insert(flat_.end(), values, values + from.numel());
  }
}

void LocalSteps::give(const OfShare& of_share) const {
  const torch::NoGradGuard no_grad;
  const float* from = flat_.data();
  for (size_t i = 0; i < parameters_.shares().size(); ++i) {
    torch::Tensor to = of_share(i);
    to.copy_(torch::from_blob(const_cast<float*>(from), to.sizes(), torch::kFloat32));
    from += to.numel();
  }
}

void LocalSteps::average(std::span<float> values) {
  comm_.all_reduce(values, ReduceOp::kAverage);
  bytes_sent_ += dense_sum_bytes(values.size_bytes(), comm_.size());
}

void LocalSteps::meet(int64_t step) {
  const OfShare masters = [this](size_t share) { return parameters_.shares()[share].master; };
  take(masters);
  if (diloco_) {
    diloco_->after_step(static_cast<uint64_t>(step), flat_);
  } else {
    average(flat_);
  }
  give(masters);
  parameters_.publish();
  weights_differ_ = false;
}

void LocalSteps::after_step(int64_t step) {
  last_step_ = step;
  weights_differ_ = moments_differ_ = true;
  if (plan_.meets_after(static_cast<uint64_t>(step))) meet(step);
}

void LocalSteps::settle() {
  if (weights_differ_) meet(last_step_);
  if (!moments_differ_) return;
  for (const Optimizer::Kind& kind : optimizer_.state()) {
    take(kind.of_share);
    average(flat_);
    give(kind.of_share);
  }
  moments_differ_ = false;
}

void LocalSteps::restart() {
  weights_differ_ = moments_differ_ = false;
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
