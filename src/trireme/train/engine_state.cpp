// The engine between steps: its trace, its memory, and the state that a checkpoint holds.
#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/comm/control/clock_offset.h"
#include "trireme/config/resolve.h"
#include "trireme/tensor/held_memory.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/train/engine.h"

namespace trireme {

void Engine::set_tracing(bool on) {
  if (on && !clock_offset_) clock_offset_ = world_.size() > 1 ? clock_offset(world_.comm()) : 0.0;
  steps_->executor().set_tracing(on);
}

StepTrace Engine::trace() const {
  return {world_.rank(),
          groups_.replica,
          groups_.place,
          steps_done_,
          clock_offset_.value_or(0),
          steps_->program(),
          steps_->executor().trace(),
          {}};
}

StateParts Engine::state_parts() const {
  StateParts bytes;
  size_t masters = 0;
  if (compute_type_ != torch::kFloat32 || parameters().masters_on_host()) {
    for (const ParameterStore::Shard& shard : parameters().shards()) masters += shard.master.nbytes();
  }
  bytes.weights = parameters().num_bytes() - masters + (fp8_ ? fp8_->num_bytes() : 0);
  bytes.gradients = part_->held().gradient_bytes();
  bytes.buffers =
      parameters().buffer_bytes() + part_->held().gradient_buffer_bytes() + steps_->executor().reducer().buffer_bytes();
  bytes.optimizer = masters + policy_->state_bytes();
  return bytes;
}

PassMemory Engine::measure_passes() {
  if (device_.is_cuda()) return {};
  part_->model().train();
  const HeldMemory memory;
  int64_t kept = 0;
  on_loss_ = [&](const torch::Tensor&) { kept = std::max(kept, memory.now_bytes()); };
  steps_->executor().replay();
  on_loss_ = {};
  return {static_cast<size_t>(kept), static_cast<size_t>(memory.most_bytes())};
}

size_t Engine::bytes_reduced() const { return steps_->executor().reducer().bytes_reduced() + policy_->bytes_sent(); }

StatePieces Engine::pieces() const {
  StatePieces pieces = policy_->pieces();
  if (const CompressedReducer* const compressor = steps_->executor().reducer().compressor()) {
    for (StatePiece& piece : compressor->save()) pieces.push_back(std::move(piece));
  }
  return pieces;
}

void Engine::load_pieces(const std::vector<StatePieces>& by_replica) {
  policy_->load_pieces(by_replica);
  if (CompressedReducer* const compressor = steps_->executor().reducer().compressor()) compressor->load(by_replica);
}

/// Broadcasts the whole parameter from its owner; `own` is the owner's part of it, undefined on the other stages.
torch::Tensor Engine::from_owner(size_t weight, const torch::Tensor& own) const {
  const ModelPart::Weight& known = part_->weights()[weight];
  torch::Tensor whole =
      own.defined()
          ? full(ParameterStore::as_whole(parameters().entries()[static_cast<size_t>(known.entry)], own)).contiguous()
          : torch::empty(known.sizes, torch::TensorOptions().device(device_));
  groups_.broadcast_from_stage(whole, known.owner);
  return whole;
}

torch::Tensor Engine::gradient(size_t weight) const {
  const double factor = policy_->gradient_factor();
  const int entry = part_->weights()[weight].entry;
  if (entry < 0) return from_owner(weight, {});
  const torch::Tensor sum =
      parameters().gather_entry(static_cast<size_t>(entry), [this](size_t shard) { return part_->gradient(shard); });
  return from_owner(weight, sum * factor);
}

torch::Tensor Engine::weight(size_t weight) const {
  policy_->finish_pulls();
  const int entry = part_->weights()[weight].entry;
  if (entry < 0) return from_owner(weight, {});
  return from_owner(weight, parameters().gather_entry(static_cast<size_t>(entry), [this](size_t shard) {
    return parameters().shards()[shard].master;
  }));
}

std::vector<Engine::NamedTensor> Engine::state() const {
  const std::vector<Optimizer::Kind> kinds = policy_->state();
  std::vector<NamedTensor> all;
  const auto& entries = parameters().entries();
  const auto& shards = parameters().shards();
  const auto add = [&](size_t i, const std::string& name, const char* group,
                       const std::function<torch::Tensor(size_t)>& of_shard) {
    const ParameterStore::Entry& entry = entries[i];
    NamedTensor& named = all.emplace_back(NamedTensor{.name = name, .group = group, .tensor = {}});
    named.sizes = entry.parameter.sizes().vec();
    if (entry.is_sharded) {
      named.entry = static_cast<int>(i);
      named.of_shard = of_shard;
      return;
    }
    const auto shard = std::find_if(shards.begin(), shards.end(), [&](const auto& each) { return each.entry == i; });
    named.tensor = ParameterStore::as_whole(
        entry, of_shard(static_cast<size_t>(shard - shards.begin())).view(local_part(entry.parameter).sizes()));
  };
  const auto masters = [this](size_t shard) { return parameters().shards()[shard].master; };
  for (size_t i = 0; i < entries.size(); ++i) add(i, entries[i].name, "weights", masters);
  const auto add_whole = [&](const auto& item) {
    all.push_back(
        {.name = item.key(), .group = "weights", .tensor = item.value(), .sizes = item.value().sizes().vec()});
  };
  for (const auto& buffer : part_->model().named_buffers()) add_whole(buffer);
  for (const auto& parameter : part_->model().named_parameters()) {
    if (!parameter.value().requires_grad()) add_whole(parameter);  // frozen
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    for (const Optimizer::Kind& kind : kinds) add(i, kind.name + "." + entries[i].name, "optimizer", kind.of_shard);
  }
  return all;
}

torch::Tensor Engine::gather(const NamedTensor& named) const {
  if (named.tensor.defined()) return full(named.tensor);  // collective for a mesh tensor
  const auto entry = static_cast<size_t>(named.entry);
  return full(
      ParameterStore::as_whole(parameters().entries()[entry], parameters().gather_entry(entry, named.of_shard)));
}

void Engine::fill(const NamedTensor& named, const torch::Tensor& whole) {
  const torch::NoGradGuard no_grad;
  if (named.tensor.defined()) {
    torch::Tensor(named.tensor).copy_(whole);  // into a mesh tensor: this rank's part
    return;
  }
  const auto entry = static_cast<size_t>(named.entry);
  const ParameterStore::Entry& known = parameters().entries()[entry];
  torch::Tensor part = whole.to(device_);
  if (is_mesh_tensor(known.parameter)) {
    part = torch::empty(local_part(known.parameter).sizes(), whole.options().device(device_));
    ParameterStore::as_whole(known, part).copy_(whole);
  }
  parameters().scatter_entry(entry, part, named.of_shard);
}

bool Engine::is_finite(const NamedTensor& named) const {
  const auto finite = [](const torch::Tensor& tensor) { return torch::isfinite(tensor).all().item<bool>(); };
  if (named.tensor.defined()) return finite(local_part(named.tensor));
  const auto& shards = parameters().shards();
  for (size_t i = 0; i < shards.size(); ++i) {
    if (static_cast<int>(shards[i].entry) == named.entry && !finite(named.of_shard(i))) return false;
  }
  return true;
}

std::string Engine::meta() const {
  Json json = {{"step", steps_done_},
               {"updates", updates_done_},
               {"samples", samples_done_},
               {"seed", config_.train.seed},
               {"loss_scale", loss_scale_.scale},
               {"loss_scale_good_steps", loss_scale_.good_steps},
               {"steps_skipped", loss_scale_.num_skipped},
               {"steps_bad", bad_steps_},
               {"compute", name_of(config_.precision.compute)},
               {"config", to_toml(config_)}};
  if (fp8_) json["fp8_scales"] = fp8_->state();
  return json.dump();
}

void Engine::restore(const std::string& meta, bool keep_position) {
  const auto json = nlohmann::json::parse(meta);
  steps_done_ = json.at("step").get<int64_t>();
  if (!keep_position) samples_done_ = json.at("samples").get<int64_t>();
  if (!keep_position) bad_steps_ = json.value("steps_bad", int64_t{0});
  loss_scale_ = LossScale::of(config_.precision);
  if (json.value("compute", "float32") == name_of(config_.precision.compute)) {  // the scale belongs to its dtype
    loss_scale_.scale = json.at("loss_scale").get<double>();
    loss_scale_.good_steps = json.at("loss_scale_good_steps").get<int64_t>();
  }
  loss_scale_.num_skipped = json.at("steps_skipped").get<int64_t>();
  if (fp8_) fp8_->restore(json.value("fp8_scales", ""));  // without saved scales, they are measured again
  part_->parameters().publish();
  part_->refresh_tied_weights();
  // A checkpoint without "updates" is of an older version, which counted skipped steps as updates.
  const int64_t skipped =
      loss_scale_.num_skipped + (config_.train.on_nan == OnNan::kSkip ? json.value("steps_bad", 0) : 0);
  updates_done_ = json.value("updates", std::max<int64_t>(0, steps_done_ * num_updates() - skipped));
  policy_->restart(steps_done_, updates_done_);
}

}  // namespace trireme
