#include "trireme/runtime/parameter_store.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "trireme/runtime/offload.h"
#include "trireme/runtime/packed_gather.h"
#include "trireme/tensor/host_shared_tensor.h"
#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

constexpr int64_t kShardAlignment = 32;  // elements of optimizer state
constexpr size_t kNone = std::numeric_limits<size_t>::max();

ParameterGroups groups_of(const torch::nn::Module& model) {
  std::vector<ParameterGroups::Item> items;
  std::vector<FlatItem> flat;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    items.push_back({item.key(), item.value()});
    flat.push_back({.count = local_part(item.value()).numel()});
  }
  return {std::move(items), FlatLayout(std::move(flat), {})};
}

void set_memory(const torch::Tensor& tensor, void* memory) {
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(memory, tensor.device()));
}

}  // namespace

struct ParameterStore::Group {
  torch::Tensor whole;        ///< flat: what the model computes with, except vectors in mixed precision
  torch::Tensor master;       ///< float32: the whole group, or this rank's part if it is sharded
  torch::Tensor vectors;      ///< float32: vectors that the model computes with, if masters are on the host
  torch::Tensor own;          ///< this rank's part of `whole` if it is sharded; never freed
  std::vector<int64_t> cuts;  ///< begin of each shard, and the end of the last; empty: not sharded
  std::vector<size_t> counts;
  size_t turn = 0;
  torch::Tensor buffer;                  ///< memory of `whole` while it is gathered, if it comes and goes
  std::unique_ptr<PackedGather> packed;  ///< null if it is gathered as it is
  torch::Tensor packed_buffer;           ///< only set during a gather
  bool is_gathered = true;
  bool is_uploading = false;  ///< [Note: Weights elsewhere]
  Handle gathering;
  bool is_sharded() const { return !cuts.empty(); }
  bool is_under_way() const { return is_uploading || gathering.valid(); }
  bool own_is_master() const { return own.data_ptr() == master.data_ptr(); }
};

ParameterStore::ParameterStore(const torch::nn::Module& model, torch::ScalarType compute_type)
    : ParameterStore(std::vector{groups_of(model)}, compute_type, {},
                     [](const std::string&, const torch::Tensor& parameter) { return local_part(parameter); }) {}

ParameterStore::ParameterStore(std::vector<ParameterGroups> stages, torch::ScalarType compute_type,
                               const ParameterSharding& sharding, const Value& value)
    : compute_type_(compute_type), sharding_(sharding) {
  const torch::NoGradGuard no_grad;
  groups_.resize(stages.size());
  const auto buffers_of = [this](torch::ScalarType type) {
    return GroupBuffers([this, type](int64_t count) {
      return host_shared_zeros(sharding_.shard_group, count, torch::TensorOptions().device(device_).dtype(type));
    });
  };
  buffers_ = buffers_of(compute_type_);
  packed_buffers_ = buffers_of(torch::kUInt8);
  for (const ParameterGroups& stage : stages) {
    layouts_.push_back(stage.layout);
    entry_of_item_.emplace_back(stage.items.size(), kNone);
    for (size_t i = 0; i < stage.items.size(); ++i) {
      const ParameterGroups::Item& item = stage.items[i];
      if (!item.parameter.defined()) continue;
      device_ = item.parameter.device();
      if (!item.is_owned) continue;
      entry_of_item_.back()[i] = entries_.size();
      entries_.push_back({.name = item.name,
                          .parameter = item.parameter,
                          .master = {},
                          .is_matrix = item.parameter.dim() >= 2,
                          .is_sharded = stage.layout.items()[i].sharded,
                          .stage = layouts_.size() - 1,
                          .item = i});
    }
  }
  if (sharding_.format) processor_ = make_processor(device_, /*in_turn=*/true);
  if (sharding_.weights_elsewhere && device_.is_cuda()) lane_ = std::make_unique<UploadLane>(device_);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (size_t group = 0; group < stages[stage].layout.groups().size(); ++group) {
      add_group(stage, static_cast<int>(group), stages[stage], value);
    }
  }
  // Sort by entry: optimizers go through parameters in the order of their declaration.
  std::stable_sort(shards_.begin(), shards_.end(), [](const Shard& a, const Shard& b) { return a.entry < b.entry; });
  for (Shard& shard : shards_) {
    shard.offset = num_owned_;
    num_owned_ += (shard.count + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
  }
  publish();
}

ParameterStore::~ParameterStore() = default;

void ParameterStore::add_group(size_t stage, int number, const ParameterGroups& all, const Value& value) {
  const FlatLayout& layout = all.layout;
  const FlatLayout::Group& place = layout.groups()[static_cast<size_t>(number)];
  const auto floats = torch::TensorOptions().device(device_);
  const bool is_sharded = place.sharded && sharding_.shard_group;
  const bool on_host = sharding_.masters_on_host, is_elsewhere = is_sharded && sharding_.weights_elsewhere;
  const bool apart = compute_type_ != torch::kFloat32 || (on_host && !is_elsewhere);
  Group& group = *groups_[stage].emplace_back(std::make_unique<Group>());
  // A second use has the first one's memory, and needs no room here. Vectors are contiguous: in mixed precision the
  // model computes with their masters, and a copy of those masters takes no room for others.
  std::map<size_t, int64_t> compact;
  int64_t room = 0, vector_room = 0;
  for (const bool vectors : {true, false}) {
    for (const size_t i : place.items) {
      const torch::Tensor& parameter = all.items[i].parameter;
      if (!parameter.defined() || (parameter.dim() < 2) != vectors) continue;
      compact[i] = room;
      room += (layout.items()[i].count + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
      if (vectors) vector_room = room;
    }
  }
  if (room == 0) {
    group.whole = group.master = torch::empty({0}, floats);
    return;
  }
  int64_t begin = 0, end = place.size;
  if (is_sharded) {
    const int num_shards = sharding_.shard_group->size(), rank = sharding_.shard_group->rank();
    group.cuts = layout.cuts(number, num_shards);
    for (size_t i = 0; i + 1 < group.cuts.size(); ++i) {
      group.counts.push_back(static_cast<size_t>(group.cuts[i + 1] - group.cuts[i]));
    }
    begin = group.cuts[static_cast<size_t>(rank)];
    end = group.cuts[static_cast<size_t>(rank) + 1];
    const auto compute = floats.dtype(compute_type_);
    if (sharding_.frees) {
      group.whole = without_memory({place.size}, compute);
      group.own = is_elsewhere ? zeros_elsewhere(end - begin, compute_type_)
                               : host_shared_zeros(sharding_.shard_group, end - begin, compute);
      // A layer and the next one are gathered at a time. Weights that distant layers use have a turn of their own.
      if (sharding_.at_once || layout.items()[place.items[0]].alone) {
        group.turn = num_turns_++;
      } else {
        group.turn = std::exchange(next_is_odd_, !next_is_odd_) ? 1 : 0;
      }
      buffers_.expect(group.turn, place.size);
      if (sharding_.format) {
        group.packed =
            std::make_unique<PackedGather>(*sharding_.shard_group, processor_ ? *processor_ : host_processor(), device_,
                                           *sharding_.format, group.counts);
        packed_buffers_.expect(group.turn, group.packed->packed_bytes());
      }
    } else {
      group.whole = host_shared_zeros(sharding_.shard_group, place.size, compute);
      group.own = group.whole.narrow(0, begin, end - begin);
    }
    group.master = apart ? zeros_elsewhere(end - begin, torch::kFloat32) : group.own;
  } else {
    group.master = apart ? zeros_elsewhere(room, torch::kFloat32) : torch::zeros({room}, floats);
    group.whole = apart ? torch::zeros({room}, floats.dtype(compute_type_)) : group.master;
    if (on_host) group.vectors = torch::zeros({vector_room}, floats);
  }
  for (const size_t i : place.items) {
    const ParameterGroups::Item& item = all.items[i];
    if (!item.parameter.defined()) continue;
    const torch::Tensor part = local_part(item.parameter);
    const int64_t at = is_sharded ? layout.places()[i].offset - place.offset : compact[i];
    const auto view = [&](const torch::Tensor& flat) { return flat.narrow(0, at, part.numel()).view(part.sizes()); };
    const torch::Tensor values = value(item.name, item.parameter);
    const size_t entry = entry_of_item_[stage][i];
    // What the model computes with: the masters for vectors in mixed precision, unless masters are on the host.
    const bool is_vector = !is_sharded && item.parameter.dim() < 2;
    const torch::Tensor& flat = !is_vector ? group.whole : on_host ? group.vectors : group.master;
    const torch::Tensor memory = view(flat);
    for (const FlatLayout::Range& range : layout.ranges(number, begin, end)) {
      if (range.item != i) continue;
      const int64_t in_master = at + range.first - (is_sharded ? begin : 0);
      const torch::Tensor own_values = values.reshape(-1).narrow(0, range.first, range.count);
      group.master.narrow(0, in_master, range.count).copy_(own_values);
      if (is_sharded && apart) group.own.narrow(0, in_master, range.count).copy_(own_values);
      if (entry == kNone) continue;
      const bool computed_apart = is_vector ? on_host : apart;
      const torch::Tensor& from = is_sharded ? group.own : flat;
      shards_.push_back({.entry = entry,
                         .first = range.first,
                         .count = range.count,
                         .master = group.master.narrow(0, in_master, range.count),
                         .compute = computed_apart ? from.narrow(0, in_master, range.count) : torch::Tensor(),
                         .stage = stage,
                         .group = number,
                         .at = range.at - begin});
    }
    torch::Tensor parameter = item.parameter;
    const MeshSpec* spec = mesh_spec(parameter);
    parameter.set_data(spec ? wrap_local(memory, spec->mesh, spec->layout, parameter.sizes()) : memory);
    if (entry != kNone && !is_sharded) entries_[entry].master = view(group.master);
  }
}

torch::Tensor ParameterStore::optimizer_zeros(int64_t count) const {
  const bool on_host = device_.is_cpu() || sharding_.masters_on_host;
  return on_host ? offloaded_zeros(sharding_.offload, count) : torch::zeros({count}, device_);
}

/// Memory apart from what the model computes with: on the device of the optimizer; host memory is pinned, so that a GPU
/// copies from it fast.
torch::Tensor ParameterStore::zeros_elsewhere(int64_t count, torch::ScalarType type) const {
  const auto options = torch::TensorOptions().dtype(type);
  if (device_.is_cpu()) return offloaded_zeros(sharding_.offload, count, type);
  if (!sharding_.masters_on_host) return torch::zeros({count}, options.device(device_));
  return sharding_.offload.empty() ? torch::zeros({count}, options.pinned_memory(true))
                                   : offloaded_zeros(sharding_.offload, count, type);
}

int ParameterStore::find(const std::string& name) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

void ParameterStore::publish() {
  const torch::NoGradGuard no_grad;
  for (const Shard& shard : shards_) publish(shard);
  mark_all_stale();
}

void ParameterStore::publish(const Shard& shard) const {
  const torch::NoGradGuard no_grad;
  if (!shard.compute.defined()) return;
  torch::Tensor compute = shard.compute, from = shard.master;
  if (compute.is_cuda() && from.is_cpu() && compute.scalar_type() != from.scalar_type()) {
    // Converting first halves the bytes of the copy. libtorch keeps pinned memory while a copy reads it.
    from = torch::empty({shard.count}, from.options().dtype(compute.scalar_type()).pinned_memory(true)).copy_(from);
  }
  compute.copy_(from, /*non_blocking=*/true);
}

void ParameterStore::mark_all_stale() {
  for (size_t stage = 0; stage < groups_.size(); ++stage) {
    for (size_t group = 0; group < groups_[stage].size(); ++group) mark_stale(stage, static_cast<int>(group));
  }
}

ParameterStore::Group& ParameterStore::group_at(size_t stage, int group) const {
  return *groups_[stage][static_cast<size_t>(group)];
}

void ParameterStore::mark_stale(size_t stage, int number) {
  Group& group = group_at(stage, number);
  if (!group.is_sharded()) return;
  if (sharding_.frees) {
    free(stage, number);
    if (group.packed) group.packed->mark_stale();
  } else {
    group.is_gathered = false;
  }
}

void ParameterStore::start_gather(size_t stage, int number) {
  Group& group = group_at(stage, number);
  if (!group.is_sharded() || group.is_gathered || group.is_under_way()) return;
  if (sharding_.frees) {
    group.buffer = buffers_.take(group.turn, group.whole.numel());
    set_memory(group.whole, group.buffer.data_ptr());
  }
  if (group.packed) {
    group.packed_buffer = packed_buffers_.take(group.turn, group.packed->packed_bytes());
    group.gathering = group.packed->start(group.own, group.packed_buffer);
    bytes_gathered_ += group.packed->bytes_sent();
    return;
  }
  torch::Tensor own = group.own;
  CallOptions options = call_options(device_);
  if (lane_) {
    const auto rank = static_cast<size_t>(sharding_.shard_group->rank());
    own = group.whole.narrow(0, group.cuts[rank], own.numel());
    lane_->done_with();
    lane_->upload({{own, group.own}});
    options.stream = lane_->stream();
    group.is_uploading = true;
    if (group.counts.size() == 1) return;
  }
  bytes_gathered_ += own.nbytes() * (group.counts.size() - 1);
  group.gathering =
      sharding_.shard_group->start_all_gather_v(data_of(own), data_of(group.whole), group.counts, options);
}

void ParameterStore::finish_gather(size_t stage, int number) {
  start_gather(stage, number);
  Group& group = group_at(stage, number);
  if (!group.is_under_way()) return;
  if (std::exchange(group.is_uploading, false)) lane_->take();
  if (group.gathering.valid()) group.gathering.wait_on(current_stream(device_));
  group.gathering = Handle();
  group.is_gathered = true;
  if (!group.packed) return;
  const torch::NoGradGuard no_grad;
  group.packed->unpack(group.packed_buffer, group.whole);
  packed_buffers_.give_back(std::exchange(group.packed_buffer, torch::Tensor()));
}

void ParameterStore::free(size_t stage, int number) {
  Group& group = group_at(stage, number);
  if (!group.is_sharded() || !sharding_.frees) return;
  if (group.is_under_way()) finish_gather(stage, number);
  group.is_gathered = false;
  if (!group.buffer.defined()) return;
  set_memory(group.whole, nullptr);
  buffers_.give_back(std::exchange(group.buffer, torch::Tensor()));
}

void ParameterStore::gather_all() {
  if (sharding_.frees) return;
  for (const bool finish : {false, true}) {
    for (size_t stage = 0; stage < groups_.size(); ++stage) {
      for (int group = 0; group < static_cast<int>(groups_[stage].size()); ++group) {
        finish ? finish_gather(stage, group) : start_gather(stage, group);
      }
    }
  }
}

torch::Tensor ParameterStore::own_part(size_t stage, size_t item) const {
  const FlatLayout& layout = layouts_[stage];
  const int number = layout.places()[item].group;
  const Group& group = group_at(stage, number);
  const auto rank = static_cast<size_t>(sharding_.shard_group->rank());
  for (const FlatLayout::Range& range : layout.ranges(number, group.cuts[rank], group.cuts[rank + 1])) {
    if (range.item == item) return group.own.narrow(0, range.at - group.cuts[rank], range.count);
  }
  return group.own.narrow(0, 0, 0);
}

torch::Tensor ParameterStore::gather_entry(size_t entry,
                                           const std::function<torch::Tensor(size_t shard)>& of_shard) const {
  const torch::NoGradGuard no_grad;
  const Entry& known = entries_[entry];
  const auto sizes = local_part(known.parameter).sizes();
  torch::Tensor own;
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].entry == entry) own = of_shard(i).to(device_, torch::kFloat32).reshape(-1);
  }
  if (!known.is_sharded || !sharding_.shard_group) return own.clone().view(sizes);
  if (!own.defined()) own = torch::empty({0}, torch::TensorOptions().device(device_));
  const FlatLayout& layout = layouts_[known.stage];
  const int number = layout.places()[known.item].group;
  const std::vector<int64_t>& cuts = group_at(known.stage, number).cuts;
  std::vector<size_t> counts;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    counts.push_back(0);
    for (const FlatLayout::Range& range : layout.ranges(number, cuts[i], cuts[i + 1])) {
      if (range.item == known.item) counts.back() = static_cast<size_t>(range.count);
    }
  }
  torch::Tensor whole = torch::empty({local_part(known.parameter).numel()}, own.options());
  sharding_.shard_group->all_gather_v(data_of(own.contiguous()), data_of(whole), counts, call_options(device_));
  return whole.view(sizes);
}

void ParameterStore::scatter_entry(size_t entry, const torch::Tensor& whole,
                                   const std::function<torch::Tensor(size_t shard)>& of_shard) const {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].entry != entry) continue;
    of_shard(i).reshape(-1).copy_(whole.reshape(-1).narrow(0, shards_[i].first, shards_[i].count));
  }
}

torch::Tensor ParameterStore::as_whole(const Entry& entry, const torch::Tensor& part) {
  const MeshSpec* spec = mesh_spec(entry.parameter);
  return spec ? wrap_local(part, spec->mesh, spec->layout, entry.parameter.sizes()) : part;
}

size_t ParameterStore::num_bytes() const {
  size_t sum = 0;
  for (const auto& stage : groups_) {
    for (const auto& group : stage) {
      sum += group->master.nbytes() + (group->vectors.defined() ? group->vectors.nbytes() : 0);
      if (!group->is_sharded()) {
        sum += group->whole.data_ptr() == group->master.data_ptr() ? 0 : group->whole.nbytes();
      } else {
        const torch::Tensor& kept = sharding_.frees ? group->own : group->whole;
        sum += kept.nbytes() - (group->own_is_master() ? group->own.nbytes() : 0);
      }
    }
  }
  return sum;
}

}  // namespace trireme
