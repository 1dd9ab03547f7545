// A step with parameter servers: gradients are pushed, servers update, weights are pulled.
#include <algorithm>
#include <set>
#include <utility>

#include "trireme/optimizer/kernels.h"
#include "trireme/tensor/device.h"
#include "trireme/train/servers/server_aggregation.h"

namespace trireme {
namespace {

std::span<float> floats_of(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

void ServerAggregation::begin(const StepStart& start) {
  HostDecision::begin(start);
  moments_.reset();
  if (!by_rows_) return;
  rows_.clear();
  for (const torch::Tensor& input : start.tokens) {
    const torch::Tensor flat = input.to(torch::kCPU, torch::kInt64).contiguous();
    rows_.insert(rows_.end(), flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel());
  }
  std::sort(rows_.begin(), rows_.end());
  rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
  pull_rows();
}

void ServerAggregation::push(int stage_number, int group) {
  if (!is_synchronous() && !end_.updates()) return;
  const auto stage = static_cast<size_t>(&part_.held().stage(stage_number) - part_.stages().data());
  if (!mirror_ || !is_synchronous()) return push_complete(stage, group);
  mirror_->start(stage, group);
  on_their_way_.emplace_back(stage, group);
  push_arrived(/*waits=*/false);
}

/// Pushes buckets whose copies from the GPU have arrived, in the order in which the copies were started.
void ServerAggregation::push_arrived(bool waits) {
  while (!on_their_way_.empty()) {
    const auto [stage, group] = on_their_way_.front();
    if (!waits && !mirror_->is_there(stage, group)) return;
    mirror_->wait(stage, group);
    on_their_way_.pop_front();
    push_complete(stage, group);
  }
}

/// Pushes the parameters whose gradients this bucket completes.
void ServerAggregation::push_complete(size_t stage, int group) {
  const GradientStore& store = *part_.stages()[stage].gradients;
  for (size_t i = 0; i < served_.parameters.size(); ++i) {
    for (const ServedParameter::Use& use : served_.parameters[i].uses) {
      if (use.stage == stage && store.group_of(use.source) == group && --missing_[i] == 0) push_parameter(i);
    }
  }
}

void ServerAggregation::copy_all() {
  for (const bool waits : {false, true}) {
    for (size_t stage = 0; stage < part_.stages().size(); ++stage) {
      for (int group = 0; group < part_.stages()[stage].gradients->num_groups(); ++group) {
        waits ? mirror_->wait(stage, group) : mirror_->start(stage, group);
      }
    }
  }
}

/// Gradient of one use in one slot, in host memory.
torch::Tensor ServerAggregation::gradient(const ServedParameter::Use& use, size_t slot) const {
  if (mirror_) return mirror_->gradient(use.stage, slot, use.source);
  return part_.stages()[use.stage].gradients->gradient(static_cast<int>(slot), use.source);
}

void ServerAggregation::push_parameter(size_t number) {
  const ServedParameter& parameter = served_.parameters[number];
  if (!pushes(parameter)) return;
  server::PushOptions options{.clock = clock_, .priority = static_cast<uint32_t>(parameter.key)};
  if (!is_synchronous()) {
    options.lr = start_.lr / groups_.dp;
    options.factor = end_.factor * groups_.dp;
  }
  if (parameter.by_rows) return push_rows(parameter, options);
  // A worker that adds its partial sums also adds the uses; in the asynchronous modes the model part does, even across
  // stages.
  const size_t num_uses = sums_own_ ? 1 : parameter.uses.size();
  const torch::NoGradGuard no_grad;
  for (size_t use = 1; codec_ && is_synchronous() && use < parameter.uses.size(); ++use) {
    gradient(parameter.uses[0], 0).add_(gradient(parameter.uses[use], 0));
  }
  std::vector<server::PartialGradient> partials;
  for (size_t i = 0; i < num_uses; ++i) {
    const ServedParameter::Use& use = parameter.uses[i];
    const int first = use.number == 0 ? 0 : tree_ << (use.number - 1);
    for (size_t slot = 0; slot < partials_.size(); ++slot) {
      const LeafRange leaves{first + partials_[slot].first, first + partials_[slot].last};
      partials.push_back({leaves, floats_of(gradient(use, slot))});
    }
  }
  pushes_.push_back(worker_->push_partials(served_.keys[parameter.key].name, partials, options));
}

/// Pushes only the rows of the step's tokens; the gradients of all other rows are zero.
void ServerAggregation::push_rows(const ServedParameter& parameter, const server::PushOptions& options) {
  const torch::Tensor rows = torch::tensor(rows_, torch::kInt64);
  std::vector<torch::Tensor> chosen;
  std::vector<server::PartialGradient> partials;
  for (size_t slot = 0; slot < partials_.size(); ++slot) {
    chosen.push_back(gradient(parameter.uses[0], slot).index_select(0, rows));
    partials.push_back({partials_[slot], floats_of(chosen.back())});
  }
  pushes_.push_back(worker_->push_rows(served_.keys[parameter.key].name, rows_, partials, options));
}

void ServerAggregation::forget_pushes() {
  pushes_.clear();
  missing_.clear();
  for (const ServedParameter& each : served_.parameters) missing_.push_back(static_cast<int>(each.uses.size()));
}

std::vector<double> ServerAggregation::by_entry(const std::vector<double>& by_key) const {
  std::vector<double> squares(part_.parameters().entries().size(), 0.0);
  for (const ServedParameter& parameter : served_.parameters) {
    if (parameter.entry >= 0) squares[static_cast<size_t>(parameter.entry)] = by_key[parameter.key];
  }
  return squares;
}

/// Σ g² of this replica's gradients, which are in slot 0.
std::vector<double> ServerAggregation::own_squares() const {
  std::vector<double> squares(part_.parameters().entries().size(), 0.0);
  for (const ServedParameter& parameter : served_.parameters) {
    if (parameter.entry < 0) continue;
    const std::span<float> sum = floats_of(gradient(parameter.uses[0], 0));
    squares[static_cast<size_t>(parameter.entry)] = sum_of_squares(sum.data(), sum.size());
  }
  return squares;
}

void ServerAggregation::collect() {
  if (mirror_) is_synchronous() ? push_arrived(/*waits=*/true) : copy_all();
}

std::vector<double> ServerAggregation::squares() {
  if (is_synchronous()) return by_entry(worker_->squares(clock_));
  std::vector<double> squares = own_squares();
  if (groups_.replicas()) groups_.replicas()->all_reduce(squares);
  for (double& square : squares) square *= groups_.dp;
  return squares;
}

void ServerAggregation::apply(const StepEnd& end) {
  if (is_synchronous()) worker_->commit(clock_, start_.lr, end.factor, end.updates()).wait();
  for (server::Pending& each : pushes_) each.wait();
  forget_pushes();
  worker_->finish_step(clock_).wait();
  ++clock_;
  has_all_rows_ &= !by_rows_;
}

void ServerAggregation::pull() {
  if (end_.updates()) start_pulls();
}

void ServerAggregation::start_pulls() {
  for (size_t i = 0; i < served_.parameters.size(); ++i) {
    const ServedParameter& parameter = served_.parameters[i];
    if (!pulls(parameter) || (parameter.by_rows && !has_all_rows_)) continue;
    pulls_[i] = worker_->pull(served_.keys[parameter.key].name, master(parameter),
                              {.clock = clock_, .priority = static_cast<uint32_t>(parameter.key)});
  }
  if (!waits_at_once_) return;
  finish_pulls();
  if (groups_.tp > 1) broadcast_replicated();
}

void ServerAggregation::finish_pull(size_t number) {
  if (!pulls_[number].valid()) return;
  std::exchange(pulls_[number], server::Pending()).wait();
  publish(served_.parameters[number]);
}

void ServerAggregation::finish_pulls() {
  if (by_rows_ && !has_all_rows_) {
    const ServedParameter& parameter = served_.parameters[*by_rows_];
    pulls_[*by_rows_] = worker_->pull(served_.keys[parameter.key].name, master(parameter), {.clock = clock_});
    has_all_rows_ = true;
  }
  for (size_t i = 0; i < pulls_.size(); ++i) finish_pull(i);
}

/// Pulls the embedding rows that the step uses, and waits for them, since the first layer needs them.
void ServerAggregation::pull_rows() {
  const ServedParameter& parameter = served_.parameters[*by_rows_];
  const server::Key& key = served_.keys[parameter.key];
  finish_pull(*by_rows_);
  std::vector<float> values(rows_.size() * key.row_width);
  worker_->pull_rows(key.name, rows_, values, {.clock = clock_}).wait();
  float* const to = master(parameter).data();
  for (size_t i = 0; i < rows_.size(); ++i) {
    std::copy_n(values.data() + i * key.row_width, key.row_width, to + static_cast<size_t>(rows_[i]) * key.row_width);
  }
  publish(parameter);
}

/// Broadcasts replicated parameters from the first tp position, which has pulled them, so that all hold the same values
/// in every mode.
void ServerAggregation::broadcast_replicated() {
  std::vector<float> all;
  for (const ServedParameter& parameter : served_.parameters) {
    if (!parameter.is_replicated || parameter.entry < 0) continue;
    const std::span<float> own = master(parameter);
    all.insert(all.end(), own.begin(), own.end());
  }
  if (all.empty()) return;
  groups_.tensor()->broadcast(all, 0);
  if (groups_.place == 0) return;
  const float* from = all.data();
  for (const ServedParameter& parameter : served_.parameters) {
    if (!parameter.is_replicated || parameter.entry < 0) continue;
    const std::span<float> own = master(parameter);
    std::copy_n(from, own.size(), own.begin());
    from += own.size();
    publish(parameter);
  }
}

/// Updates the weights that the model computes with from the master.
void ServerAggregation::publish(const ServedParameter& parameter) const {
  part_.parameters().publish(part_.parameters().shards()[parameter.shard]);
}

}  // namespace trireme
