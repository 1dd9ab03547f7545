// A step with parameter servers: gradients leave, the servers update, weights come back.
#include <algorithm>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/optimizer/kernels.h"
#include "trireme/tensor/device.h"
#include "trireme/train/server_aggregation.h"

namespace trireme {

using server::Part;

namespace {

std::span<float> floats_of(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

void ServerAggregation::begin_step(const std::vector<torch::Tensor>& tokens) {
  moments_.reset();
  if (is_stale_) start_pulls();
  if (!by_rows_) return;
  rows_.clear();
  for (const torch::Tensor& input : tokens) {
    const torch::Tensor flat = input.to(torch::kCPU, torch::kInt64).contiguous();
    rows_.insert(rows_.end(), flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel());
  }
  std::sort(rows_.begin(), rows_.end());
  rows_.erase(std::unique(rows_.begin(), rows_.end()), rows_.end());
  pull_rows();
}

void ServerAggregation::push_group(int number) {
  // Without rounds the factor is not known before the norm; and whether a replica counts, not before it is done.
  if (is_synchronous() && !counts_replicas()) push_group_now(number);
}

void ServerAggregation::push_group_now(int number) {
  const auto [stage, group] = group_places_[static_cast<size_t>(number)];
  GradientStore& store = *part_.stages()[stage].gradients;
  for (size_t slot = 1; sums_own_ && slot < num_slots_; ++slot) store.add_slot(group, 0, static_cast<int>(slot));
  if (!mirror_) return push_complete(stage, group);
  mirror_->start(stage, group);
  on_their_way_.emplace_back(stage, group);
  push_arrived(/*waits=*/false);
}

/// Copies from a GPU, in the order in which they were started.
void ServerAggregation::push_arrived(bool waits) {
  while (!on_their_way_.empty()) {
    const auto [stage, group] = on_their_way_.front();
    if (!waits && !mirror_->is_there(stage, group)) return;
    mirror_->wait(stage, group);
    on_their_way_.pop_front();
    push_complete(stage, group);
  }
}

/// Pushes the parameters whose last group this is.
void ServerAggregation::push_complete(size_t stage, int group) {
  const GradientStore& store = *part_.stages()[stage].gradients;
  for (size_t i = 0; i < served_.parameters.size(); ++i) {
    for (const ServedParameter::Use& use : served_.parameters[i].uses) {
      if (use.stage == stage && store.group_of(use.source) == group && --missing_[i] == 0) push(i, 1, 0);
    }
  }
}

/// From a GPU, those that nobody has named during the backward pass.
void ServerAggregation::copy_rest() {
  if (!mirror_) return;
  std::set<std::pair<size_t, int>> groups;
  for (size_t i = 0; i < pushed_.size(); ++i) {
    for (const ServedParameter::Use& use : served_.parameters[i].uses) {
      if (!pushed_[i]) groups.emplace(use.stage, part_.stages()[use.stage].gradients->group_of(use.source));
    }
  }
  for (const auto& [stage, group] : groups) mirror_->start(stage, group);
  for (const auto& [stage, group] : groups) mirror_->wait(stage, group);
}

/// On the host.
torch::Tensor ServerAggregation::gradient(const ServedParameter::Use& use, size_t slot) const {
  if (mirror_) return mirror_->gradient(use.stage, slot, use.source);
  return part_.stages()[use.stage].gradients->gradient(static_cast<int>(slot), use.source);
}

void ServerAggregation::push(size_t number, double factor, double lr) {
  const ServedParameter& parameter = served_.parameters[number];
  pushed_[number] = true;
  if (!pushes(parameter)) return;
  const server::PushOptions options{
      .clock = clock_, .lr = lr, .factor = factor, .priority = static_cast<uint32_t>(parameter.key)};
  if (parameter.by_rows) return push_rows(parameter, options);
  // Where own partial sums are added, so are the uses: without rounds by the model part, among stages.
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

/// Those of the step's tokens; the gradients of the others are zero.
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

void ServerAggregation::push_rest(double factor, double lr) {
  push_arrived(/*waits=*/true);
  if (is_synchronous()) copy_rest();
  for (size_t i = 0; i < pushed_.size(); ++i) {
    if (!pushed_[i]) push(i, factor, lr);
  }
}

void ServerAggregation::forget_pushes() {
  pushes_.clear();
  missing_.clear();
  for (const ServedParameter& each : served_.parameters) missing_.push_back(static_cast<int>(each.uses.size()));
  pushed_.assign(served_.parameters.size(), false);
}

std::vector<double> ServerAggregation::by_entry(const std::vector<double>& by_key) const {
  std::vector<double> squares(part_.parameters().entries().size(), 0.0);
  for (const ServedParameter& parameter : served_.parameters) {
    if (parameter.entry >= 0) squares[static_cast<size_t>(parameter.entry)] = by_key[parameter.key];
  }
  return squares;
}

/// Of this replica's gradients, which lie in the first slot.
std::vector<double> ServerAggregation::own_squares() const {
  std::vector<double> squares(part_.parameters().entries().size(), 0.0);
  for (const ServedParameter& parameter : served_.parameters) {
    if (parameter.entry < 0) continue;
    const std::span<float> sum = floats_of(gradient(parameter.uses[0], 0));
    squares[static_cast<size_t>(parameter.entry)] = sum_of_squares(sum.data(), sum.size());
  }
  return squares;
}

std::vector<double> ServerAggregation::squares() {
  if (is_synchronous()) {
    push_rest(1, 0);
    const server::RoundSums sums = worker_->sums(clock_);
    if (sums.is_gone) throw Error("servers have summed a later step without this worker");
    return by_entry(sums.squares);
  }
  for (const ModelPart::StagePart& stage : part_.stages()) {
    for (size_t slot = 1; slot < num_slots_; ++slot) {
      for (int group = 0; group < stage.gradients->num_groups(); ++group) {
        stage.gradients->add_slot(group, 0, static_cast<int>(slot));
      }
    }
  }
  part_.add_shared_gradients();
  copy_rest();
  std::vector<double> squares = own_squares();
  if (groups_.replicas()) groups_.replicas()->all_reduce(squares);
  for (double& square : squares) square *= groups_.dp;
  return squares;
}

void ServerAggregation::update(double factor, double lr, bool applies) {
  if (is_synchronous()) {
    worker_->commit(clock_, lr, factor, applies).wait();
  } else if (applies) {
    push_rest(factor * groups_.dp, lr / groups_.dp);
  }
  finish_step(applies);
}

void ServerAggregation::finish_step(bool pulls) {
  size_t num_dropped = 0;
  for (server::Pending& each : pushes_) {
    each.wait();
    num_dropped += each.num_dropped();
  }
  num_late_ += num_dropped > 0 ? 1 : 0;
  forget_pushes();
  worker_->finish_step(clock_).wait();
  ++clock_;
  has_all_rows_ &= !by_rows_;
  if (pulls) start_pulls();
}

void ServerAggregation::push_values(const std::vector<torch::Tensor>& slots) {
  torch::Tensor sum = slots[0].clone();
  for (size_t slot = 1; slot < num_slots_; ++slot) sum += slots[slot];
  sum = sum.cpu();
  const std::span<float> values = floats_of(sum);
  if (counts_replicas()) {  // of each stage
    for (size_t i = 0; i < num_values_; ++i) values_[i] += values[i];
    return;
  }
  values_.assign(values.begin(), values.end());
  const server::PartialGradient own{partials_[0], values_};
  pushes_.push_back(
      worker_->push_partials(served_.keys[*values_key_].name, std::span(&own, 1), {.clock = clock_, .lr = 0}));
}

/// Whether this replica's gradients count: [Note: Backup replicas].
bool ServerAggregation::ask_to_push() {
  if (groups_.pipeline()) groups_.pipeline()->all_reduce(std::span(values_));
  std::vector<int32_t> counts = {0};
  if (is_first_of_model()) {
    const size_t mark = num_values_ + static_cast<size_t>(groups_.replica);
    values_[mark] = 1;
    const server::PartialGradient own{partials_[0], values_};
    const std::string& name = served_.keys[*values_key_].name;
    worker_->push_partials(name, std::span(&own, 1), {.clock = clock_, .lr = 0}).wait();
    std::vector<float> sum(values_.size());
    worker_->pull(name, sum, {.clock = clock_, .part = Part::kSquares}).wait();
    counts[0] = sum[mark] > 0 ? 1 : 0;
  }
  groups_.model()->broadcast(counts, 0);
  std::fill(values_.begin(), values_.end(), 0.f);
  return counts[0] != 0;
}

/// The same on all workers of a model, who leave a step out together.
std::optional<ServerAggregation::RoundEnd> ServerAggregation::ended() {
  std::optional<RoundEnd> end = is_first_of_model() ? known_end() : std::nullopt;
  if (!groups_.model()) return end;
  std::vector<int32_t> is_known = {end ? 1 : 0};
  groups_.model()->broadcast(is_known, 0);
  if (is_known[0] == 0) return std::nullopt;
  return shared_with_model(end.value_or(RoundEnd()));
}

/// What the first worker of a model knows.
ServerAggregation::RoundEnd ServerAggregation::shared_with_model(const RoundEnd& end) const {
  if (!groups_.model()) return end;
  std::vector<double> numbers = {end.loss, end.norm, end.stop ? 1.0 : 0.0, end.applies ? 1.0 : 0.0, end.factor};
  groups_.model()->broadcast(numbers, 0);
  return {numbers[0], numbers[1], numbers[2] > 0, numbers[3] > 0, numbers[4]};
}

std::optional<ServerAggregation::RoundEnd> ServerAggregation::known_end() {
  const std::optional<server::Committed> end = worker_->committed(clock_);
  if (!end) return std::nullopt;
  if (end->notes.size() != 3) throw Error("a step was committed by another program");
  return RoundEnd{end->notes[0], end->notes[1], end->notes[2] > 0, end->applies, end->factor};
}

void ServerAggregation::skip_step() {
  ++clock_;
  ++num_late_;
  is_stale_ = true;
  has_all_rows_ &= !by_rows_;
}

ServerAggregation::RoundEnd ServerAggregation::end_round(double lr, const Decide& decide) {
  const bool counts = !counts_replicas() || ask_to_push();
  if (!counts) {
    ++num_late_;
    forget_pushes();
  } else {
    for (int number = 0; counts_replicas() && std::cmp_less(number, group_places_.size()); ++number) {
      const auto [stage, group] = group_places_[static_cast<size_t>(number)];
      if (group < part_.stages()[stage].gradients->num_groups()) push_group_now(number);
    }
    push_rest(1, 0);
  }
  const RoundEnd end = shared_with_model(is_first_of_model() ? find_end(lr, decide) : RoundEnd());
  finish_step(true);
  return end;
}

/// What all who ask find; the first of them tells the servers.
ServerAggregation::RoundEnd ServerAggregation::find_end(double lr, const Decide& decide) {
  const server::RoundSums sums = worker_->sums(clock_);
  if (sums.is_gone) {
    const std::optional<RoundEnd> known = known_end();
    if (!known) throw Error("servers have ended a step that nobody has committed");
    return *known;
  }
  double squares = 0;
  for (const double of_key : sums.squares) squares += of_key;
  const RoundEnd end = decide(squares, sums.values[*values_key_]);
  worker_->commit(clock_, lr, end.factor, end.applies, {end.loss, end.norm, end.stop ? 1.0 : 0.0}).wait();
  return end;
}

void ServerAggregation::start_pulls() {
  is_stale_ = false;
  for (size_t i = 0; i < served_.parameters.size(); ++i) {
    const ServedParameter& parameter = served_.parameters[i];
    if (!pulls(parameter) || (parameter.by_rows && !has_all_rows_)) continue;
    pulls_[i] = worker_->pull(served_.keys[parameter.key].name, master(parameter),
                              {.clock = clock_, .priority = static_cast<uint32_t>(parameter.key)});
  }
  if (!waits_at_once_) return;
  finish_pulls();
  if (groups_.tp > 1) share_replicated();
  part_.share_weights();
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

/// Of the embedding: those that the step will use, which are needed before everything else.
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

/// What every place has, from the first, who has pulled it: so that all have the same, whatever the mode.
void ServerAggregation::share_replicated() {
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

/// The weights that the model computes with follow the master.
void ServerAggregation::publish(const ServedParameter& parameter) const {
  part_.parameters().publish(part_.parameters().shares()[parameter.share]);
}

}  // namespace trireme
