#include "trireme/parallel/data/fully_shard.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/parallel/data/broadcast.h"

namespace trireme {

FullyShard::FullyShard(Communicator& comm, torch::nn::Sequential layers, const FullyShardOptions& options)
    : comm_(comm), owner_(std::move(layers)), reducer_(&comm, CrossRankSum{}, torch::kFloat32) {
  broadcast_parameters(comm, *owner_);
  StageSources whole{.layers = {0, static_cast<int>(owner_->size())}};
  for (size_t number = 0; number < owner_->size(); ++number) {
    layers_.push_back(*(owner_->begin() + static_cast<std::ptrdiff_t>(number)));
    const std::optional<std::string> tied =
        add_sources(whole.sources, *layers_.back().ptr(), fmt::format("{}.", number), static_cast<int>(number));
    if (tied) {
      throw UsageError(fmt::format("{} is a parameter of an earlier layer, too", *tied),
                       "layers that share a parameter cannot free it one by one: put them into one layer");
    }
  }
  for (GradientSource& source : whole.sources) source.sharded = source.leaf.dim() >= 2;
  const auto bytes = static_cast<int64_t>(options.bucket_mb * (1 << 20));
  std::vector<StageSources> stages;
  stages.push_back(std::move(whole));
  held_ = std::make_unique<StageSet>(
      std::move(stages), std::vector<TiedParameter>(),
      StageSetOptions{
          .replicas = &comm,
          .gradients = {.bucket_bytes = bytes,
                        .first_bucket_bytes = bytes,
                        .by_unit = true,
                        .num_shards = comm.size(),
                        .own_shard = comm.rank(),
                        .keeps_whole = false},
          .weights = {{.sharding = {.shard_group = &comm, .frees = true, .at_once = options.keep},
                       .value = [](const std::string&, const torch::Tensor& leaf) { return leaf.clone(); }}}});
  gradients().on_full = [this] { return reducer_.finish_first(); };
}

FullyShard::~FullyShard() = default;

torch::Tensor FullyShard::forward(torch::Tensor x) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    held_->before(i);
    x = layers_[i].forward<torch::Tensor>(x);
    held_->after(i, {x});
  }
  return x;
}

void FullyShard::start(int group) {
  const torch::NoGradGuard no_grad;
  GradientStore& store = gradients();
  const double average = 1.0 / comm_.size();  // before the sum, as in DataParallel
  if (!store.is_sharded(group)) return reducer_.start(group, {store.group(0, group).mul_(average)});
  const torch::Tensor whole = store.take_out(group).mul_(average);
  reducer_.start(group, {whole}, true, sharded_sum(store, group, whole, comm_));
}

void FullyShard::backward(const torch::Tensor& loss) {
  LayerWeights& weights = *held_->stages()[0].weights;
  weights.begin_backward();
  gradients().begin(0, false, [this](int group) { start(group); });
  loss.backward();
  gradients().end();
  weights.end_pass(false);
  reducer_.finish();
  const torch::NoGradGuard no_grad;
  const std::vector<ParameterStore::Shard>& shards = held_->parameters().shards();
  for (size_t i = 0; i < shards.size(); ++i) torch::Tensor(shards[i].master).mutable_grad() = held_->gradient(i);
}

std::vector<torch::Tensor> FullyShard::parameters() const {
  std::vector<torch::Tensor> all;
  for (const ParameterStore::Shard& shard : held_->parameters().shards()) all.push_back(shard.master);
  return all;
}

void FullyShard::publish() { held_->parameters().publish(); }

torch::Tensor FullyShard::gather(const std::string& name) const {
  const int entry = held_->parameters().find(name);
  if (entry < 0) throw UsageError(fmt::format("there is no parameter {}", name), "names are those of the Sequential");
  return held_->parameters().gather_entry(static_cast<size_t>(entry),
                                          [this](size_t shard) { return held_->parameters().shards()[shard].master; });
}

}  // namespace trireme
