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
  store.group_bytes = store.first_group_bytes = static_cast<int64_t>(options.group_mb * (1 << 20));
  store.by_unit = true;
  store.num_shares = comm.size();
  store.own_share = comm.rank();
  store.keeps_whole = false;
  parameters_ = std::make_unique<ParameterStore>(
      std::vector{ParameterGroups{std::move(items), layout_of(sources, store)}}, torch::kFloat32,
      ParameterSharing{.sharers = &comm, .frees = true, .at_once = options.keep},
      [](const std::string&, const torch::Tensor& parameter) { return parameter.clone(); });
  gradients_ = std::make_unique<GradientStore>(&comm, sources, store);
  gradients_->on_full = [this] { return reducer_.finish_first(); };
  std::vector<std::set<LayerWeights::Group>> needed(layers_.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].shared) needed[static_cast<size_t>(sources[i].unit)].insert({0, gradients_->group_of(i)});
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
    weights_->after(i, x);
  }
  return x;
}

void FullyShard::start(int group) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor whole = gradients_->is_shared(group) ? gradients_->take_out(group) : gradients_->group(0, group);
  torch::Tensor(whole).mul_(1.0 / comm_.size());  // as DataParallel averages
  if (!gradients_->is_shared(group)) return reducer_.start(group, {whole});
  SharedSum shared;
  shared.sharers = &comm_;
  shared.cuts = &gradients_->cuts(group);
  shared.share = gradients_->share(group);
  shared.on_done = [this, whole] { gradients_->give_back(whole); };
  reducer_.start(group, {whole}, true, std::move(shared));
}

void FullyShard::backward(const torch::Tensor& loss) {
  weights_->begin_backward();
  gradients_->begin(0, false, [this](int group) { start(group); });
  loss.backward();
  gradients_->end();
  weights_->end_pass(false);
  reducer_.finish();
  const torch::NoGradGuard no_grad;
  for (const ParameterStore::Share& share : parameters_->shares()) {
    const torch::Tensor sum =
        gradients_->is_shared(share.group) ? gradients_->share(share.group) : gradients_->group(0, share.group);
    torch::Tensor(share.master).mutable_grad() = sum.narrow(0, share.at, share.count);
  }
}

std::vector<torch::Tensor> FullyShard::parameters() const {
  std::vector<torch::Tensor> all;
  for (const ParameterStore::Share& share : parameters_->shares()) all.push_back(share.master);
  return all;
}

void FullyShard::publish() { parameters_->publish(); }

torch::Tensor FullyShard::gather(const std::string& name) const {
  const int entry = parameters_->find(name);
  if (entry < 0) throw UsageError(fmt::format("there is no parameter {}", name), "names are those of the Sequential");
  return parameters_->gather_entry(static_cast<size_t>(entry),
                                   [this](size_t share) { return parameters_->shares()[share].master; });
}

}  // namespace trireme
