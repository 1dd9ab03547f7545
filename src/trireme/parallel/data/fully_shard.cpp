#include "trireme/parallel/data/fully_shard.h"

#include <fmt/format.h>

#include <set>

#include "trireme/base/error.h"
#include "trireme/parallel/data/broadcast.h"

namespace trireme {

FullyShard::FullyShard(Communicator& comm, torch::nn::Sequential layers, const FullyShardOptions& options)
    : comm_(comm), owner_(std::move(layers)), reducer_(&comm, CrossRankSum{}, torch::kFloat32) {
  broadcast_parameters(comm, *owner_);
  std::vector<GradientSource> sources;
  std::vector<ParameterGroups::Item> items;
  std::set<const void*> seen;
  for (size_t number = 0; number < owner_->size(); ++number) {
    layers_.push_back(*(owner_->begin() + static_cast<std::ptrdiff_t>(number)));
    for (const auto& item : layers_.back().ptr()->named_parameters()) {
      if (!item.value().requires_grad()) continue;
      const std::string name = fmt::format("{}.{}", number, item.key());
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) {
        throw UsageError(fmt::format("{} is a parameter of an earlier layer, too", name),
                         "layers that share a parameter cannot free it one by one: put them into one layer");
      }
      sources.push_back({name, item.value(), item.value().dim() >= 2, false, static_cast<int>(number)});
      items.push_back({name, item.value()});
    }
  }
  GradientStoreOptions store;
  store.bucket_bytes = store.first_bucket_bytes = static_cast<int64_t>(options.bucket_mb * (1 << 20));
  store.by_unit = true;
  store.num_shards = comm.size();
  store.own_shard = comm.rank();
  store.keeps_whole = false;
  parameters_ = std::make_unique<ParameterStore>(
      std::vector{ParameterGroups{std::move(items), layout_of(sources, store)}}, torch::kFloat32,
      ParameterSharding{.shard_group = &comm, .frees = true, .at_once = options.keep},
      [](const std::string&, const torch::Tensor& parameter) { return parameter.clone(); });
  gradients_ = std::make_unique<GradientStore>(&comm, sources, store);
  gradients_->on_full = [this] { return reducer_.finish_first(); };
  std::vector<std::set<LayerWeights::Group>> needed(layers_.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].sharded) needed[static_cast<size_t>(sources[i].unit)].insert({0, gradients_->group_of(i)});
  }
  std::vector<std::vector<LayerWeights::Group>> groups;
  for (const auto& of_layer : needed) groups.emplace_back(of_layer.begin(), of_layer.end());
  weights_ = std::make_unique<LayerWeights>(*parameters_, 0, 0, std::move(groups), options.keep);
}

FullyShard::~FullyShard() = default;

torch::Tensor FullyShard::forward(torch::Tensor x) {
  for (size_t i = 0; i < layers_.size(); ++i) {
    weights_->before(i);
    x = layers_[i].forward<torch::Tensor>(x);
    weights_->after(i, {x});
  }
  return x;
}

void FullyShard::start(int group) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor whole = gradients_->is_sharded(group) ? gradients_->take_out(group) : gradients_->group(0, group);
  torch::Tensor(whole).mul_(1.0 / comm_.size());  // as DataParallel averages
  if (!gradients_->is_sharded(group)) return reducer_.start(group, {whole});
  ShardedSum sharded;
  sharded.shard_group = &comm_;
  sharded.cuts = &gradients_->cuts(group);
  sharded.shard = gradients_->shard(group);
  sharded.on_done = [this, whole] { gradients_->give_back(whole); };
  reducer_.start(group, {whole}, true, std::move(sharded));
}

void FullyShard::backward(const torch::Tensor& loss) {
  weights_->begin_backward();
  gradients_->begin(0, false, [this](int group) { start(group); });
  loss.backward();
  gradients_->end();
  weights_->end_pass(false);
  reducer_.finish();
  const torch::NoGradGuard no_grad;
  for (const ParameterStore::Shard& shard : parameters_->shards()) {
    const torch::Tensor sum =
        gradients_->is_sharded(shard.group) ? gradients_->shard(shard.group) : gradients_->group(0, shard.group);
    torch::Tensor(shard.master).mutable_grad() = sum.narrow(0, shard.at, shard.count);
  }
}

std::vector<torch::Tensor> FullyShard::parameters() const {
  std::vector<torch::Tensor> all;
  for (const ParameterStore::Shard& shard : parameters_->shards()) all.push_back(shard.master);
  return all;
}

void FullyShard::publish() { parameters_->publish(); }

torch::Tensor FullyShard::gather(const std::string& name) const {
  const int entry = parameters_->find(name);
  if (entry < 0) throw UsageError(fmt::format("there is no parameter {}", name), "names are those of the Sequential");
  return parameters_->gather_entry(static_cast<size_t>(entry),
                                   [this](size_t shard) { return parameters_->shards()[shard].master; });
}

}  // namespace trireme
