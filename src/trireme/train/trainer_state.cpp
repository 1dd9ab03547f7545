// What a trainer is asked between steps: how well it does, and the state that a checkpoint holds.
#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/comm/clock_offset.h"
#include "trireme/config/resolve.h"
#include "trireme/data/sample_stream.h"
#include "trireme/tensor/held_memory.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/train/trainer.h"

namespace trireme {

Evaluation Trainer::evaluate(int64_t num_batches) {
  if (!data_.held_out) return {};
  torch::NoGradGuard no_grad;
  const SampleStream stream(data_.held_out, 0, SampleOrder::kAsStored, parts_to_read());
  const int64_t samples = std::min(data_.held_out->size(), num_batches * plan_.global_batch);
  const int64_t blocks = (samples + plan_.micro_batch - 1) / plan_.micro_batch;
  // One place for each block, filled by one worker: adding the others' zeros changes nothing, so neither does dp.
  std::vector<double> sums(static_cast<size_t>(3 * blocks), 0.0);
  part_->gather_weights();
  if (server_) server_->refresh();
  // Where passes gather weights, all replicas make as many: what is too much counts nothing. Stages agree on that, also
  // where only some of them have replicas.
  const bool together_always = config_.parallel.zero == 3 && plan_.dp > 1;
  const int64_t end = together_always ? (blocks + plan_.dp - 1) / plan_.dp * plan_.dp : blocks;
  for (int64_t number = 0; number < end; ++number) {
    const int64_t lane = number % plan_.dp;
    if (!groups_.has_lane(lane)) continue;
    if (lane == groups_.first_lane) part_->finish_predictions();
    const int64_t block = std::min(number, blocks - 1);
    const int64_t first = block * plan_.micro_batch;
    const int64_t count = std::min(plan_.micro_batch, samples - first);
    const Inputs inputs = tensors_of(std::make_shared<Batch>(stream.read(first, count)), data_.held_out->shape());
    const auto at = static_cast<size_t>(3 * block);
    // A GPU takes samples one by one: logits of all would be more than a training step holds.
    const int64_t together = device_.is_cuda() ? 1 : count;
    const auto some = [&](const torch::Tensor& of, int64_t from) {
      return of.defined() ? of.narrow(0, from, together) : of;
    };
    // The last block may be short.
    const int64_t most = together_always && together == 1 ? std::min(plan_.micro_batch, samples) : count;
    for (int64_t from = 0; from < most; from += together) {
      const int64_t sample = std::min(from, count - together);
      const torch::Tensor logits =
          run_forward(some(inputs.input, sample), data_.held_out->shape().seq, static_cast<int>(lane));
      if (!logits.defined() || block != number || sample != from) continue;  // the last stage counts
      const torch::Tensor target = some(inputs.target, from).to(device_);
      const auto predictions = static_cast<double>(target.numel());
      sums[at] += part_->model().loss(logits, target).item<double>() * predictions;
      sums[at + 1] += static_cast<double>(count_correct(logits, target));
      sums[at + 2] += predictions;
    }
  }
  part_->finish_predictions();
  if (groups_.replicas()) groups_.replicas()->all_reduce(sums);
  groups_.sum_over_stages(sums);
  double loss = 0, correct = 0, predictions = 0;
  for (size_t at = 0; at < sums.size(); at += 3) {
    loss += sums[at];
    correct += sums[at + 1];
    predictions += sums[at + 2];
  }
  loss /= predictions;
  return {loss, std::exp(loss), correct / predictions, samples};
}

void Trainer::set_tracing(bool on) {
  if (on && !clock_offset_) clock_offset_ = world_.size() > 1 ? clock_offset(world_.comm()) : 0.0;
  executor_->set_tracing(on);
}

StepTrace Trainer::trace() const {
  return {world_.rank(),
          groups_.replica,
          groups_.place,
          steps_done_,
          clock_offset_.value_or(0),
          executor_->program(),
          executor_->trace(),
          {}};
}

StateParts Trainer::state_parts() const {
  StateParts bytes;
  size_t masters = 0;
  if (compute_type_ != torch::kFloat32 || parameters().masters_on_host()) {
    for (const ParameterStore::Share& share : parameters().shares()) masters += share.master.nbytes();
  }
  bytes.weights = parameters().num_bytes() - masters + (fp8_ ? fp8_->num_bytes() : 0);
  bytes.gradients = part_->gradient_bytes();
  bytes.buffers = parameters().buffer_bytes() + part_->gradient_buffer_bytes() + executor_->reducer().buffer_bytes();
  bytes.optimizer = masters + (optimizer_ ? optimizer_->num_bytes() : 0);
  return bytes;
}

PassMemory Trainer::measure_passes() {
  if (device_.is_cuda()) return {};
  part_->model().train();
  const HeldMemory memory;
  int64_t kept = 0;
  on_loss_ = [&](const torch::Tensor&) { kept = std::max(kept, memory.now_bytes()); };
  executor_->replay();
  on_loss_ = {};
  return {static_cast<size_t>(kept), static_cast<size_t>(memory.most_bytes())};
}

size_t Trainer::bytes_reduced() const {
  return executor_->reducer().bytes_reduced() + (server_ ? server_->worker_stats().bytes_sent : 0) +
         (local_ ? local_->bytes_sent() : 0) + (momentum_ ? momentum_->bytes_sent() : 0) +
         (adasum_ ? adasum_->bytes_sent() : 0);
}

StatePieces Trainer::pieces() const {
  if (server_) return server_->pieces();
  if (local_) return local_->save();
  if (momentum_) return momentum_->save();
  CompressedReducer* const compressor = executor_->reducer().compressor();
  return compressor ? compressor->save() : StatePieces();
}

void Trainer::load_pieces(const std::vector<StatePieces>& by_replica) {
  if (local_) local_->load(by_replica);
  if (momentum_) momentum_->load(by_replica);
  if (server_) server_->load_pieces(by_replica);
  if (CompressedReducer* const compressor = executor_->reducer().compressor()) compressor->load(by_replica);
}

/// `own` is what the owner of a parameter has of it.
torch::Tensor Trainer::from_owner(size_t weight, const torch::Tensor& own) const {
  const ModelPart::Weight& known = part_->weights()[weight];
  torch::Tensor whole =
      own.defined()
          ? full(ParameterStore::as_whole(parameters().entries()[static_cast<size_t>(known.entry)], own)).contiguous()
          : torch::empty(known.sizes, torch::TensorOptions().device(device_));
  groups_.share_of_stage(whole, known.owner);
  return whole;
}

torch::Tensor Trainer::gradient(size_t weight) const {
  if (server_) throw Error("gradients are summed on parameter servers, and no worker has the sum");
  const int entry = part_->weights()[weight].entry;
  if (entry < 0) return from_owner(weight, {});
  const torch::Tensor sum =
      parameters().gather_entry(static_cast<size_t>(entry), [this](size_t share) { return part_->gradient(share); });
  return from_owner(weight, sends_momentum_ ? sum : sum * gradient_factor_);
}

torch::Tensor Trainer::weight(size_t weight) const {
  if (server_) server_->finish_pulls();
  const int entry = part_->weights()[weight].entry;
  if (entry < 0) return from_owner(weight, {});
  return from_owner(weight, parameters().gather_entry(static_cast<size_t>(entry), [this](size_t share) {
    return parameters().shares()[share].master;
  }));
}

std::vector<Trainer::NamedTensor> Trainer::state() const {
  if (local_) local_->settle();
  const std::vector<Optimizer::Kind> kinds = server_ ? server_->state() : optimizer_->state();
  std::vector<NamedTensor> all;
  const auto& entries = parameters().entries();
  const auto& shares = parameters().shares();
  const auto add = [&](size_t i, const std::string& name, const char* group,
                       const std::function<torch::Tensor(size_t)>& of_share) {
    const ParameterStore::Entry& entry = entries[i];
    NamedTensor& named = all.emplace_back(NamedTensor{.name = name, .group = group, .tensor = {}});
    named.sizes = entry.parameter.sizes().vec();
    if (entry.is_shared) {
      named.entry = static_cast<int>(i);
      named.of_share = of_share;
      return;
    }
    const auto share = std::find_if(shares.begin(), shares.end(), [&](const auto& each) { return each.entry == i; });
    named.tensor = ParameterStore::as_whole(
        entry, of_share(static_cast<size_t>(share - shares.begin())).view(local_part(entry.parameter).sizes()));
  };
  const auto masters = [this](size_t share) { return parameters().shares()[share].master; };
  for (size_t i = 0; i < entries.size(); ++i) add(i, entries[i].name, "weights", masters);
  for (const auto& buffer : part_->model().named_buffers()) {
    all.push_back(
        {.name = buffer.key(), .group = "weights", .tensor = buffer.value(), .sizes = buffer.value().sizes().vec()});
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    for (const Optimizer::Kind& kind : kinds) add(i, kind.name + "." + entries[i].name, "optimizer", kind.of_share);
  }
  return all;
}

torch::Tensor Trainer::gather(const NamedTensor& named) const {
  if (named.tensor.defined()) return full(named.tensor);  // a mesh tensor is gathered by all
  const auto entry = static_cast<size_t>(named.entry);
  return full(
      ParameterStore::as_whole(parameters().entries()[entry], parameters().gather_entry(entry, named.of_share)));
}

void Trainer::fill(const NamedTensor& named, const torch::Tensor& whole) {
  const torch::NoGradGuard no_grad;
  if (named.tensor.defined()) {
    torch::Tensor(named.tensor).copy_(whole);  // of a mesh tensor, this rank's part
    return;
  }
  const auto entry = static_cast<size_t>(named.entry);
  const ParameterStore::Entry& known = parameters().entries()[entry];
  torch::Tensor part = whole.to(device_);
  if (is_mesh_tensor(known.parameter)) {
    part = torch::empty(local_part(known.parameter).sizes(), whole.options().device(device_));
    ParameterStore::as_whole(known, part).copy_(whole);
  }
  parameters().scatter_entry(entry, part, named.of_share);
}

bool Trainer::is_finite(const NamedTensor& named) const {
  const auto finite = [](const torch::Tensor& tensor) { return torch::isfinite(tensor).all().item<bool>(); };
  if (named.tensor.defined()) return finite(local_part(named.tensor));
  const auto& shares = parameters().shares();
  for (size_t i = 0; i < shares.size(); ++i) {
    if (static_cast<int>(shares[i].entry) == named.entry && !finite(named.of_share(i))) return false;
  }
  return true;
}

std::string Trainer::meta() const {
  Json json = {{"step", steps_done_},
               {"samples", samples_done_},
               {"seed", config_.train.seed},
               {"loss_scale", loss_scale_.scale},
               {"loss_scale_good_steps", loss_scale_.good_steps},
               {"steps_skipped", loss_scale_.num_skipped},
               {"steps_bad", bad_steps_},
               {"compute", config_.precision.compute},
               {"config", to_toml(config_)}};
  if (fp8_) json["fp8_scales"] = fp8_->state();
  return json.dump();
}

void Trainer::restore(const std::string& meta, bool keep_position) {
  const auto json = nlohmann::json::parse(meta);
  steps_done_ = json.at("step").get<int64_t>();
  if (!keep_position) samples_done_ = json.at("samples").get<int64_t>();
  if (!keep_position) bad_steps_ = json.value("steps_bad", int64_t{0});
  loss_scale_ = LossScale::of(config_.precision);
  if (json.value("compute", "float32") == config_.precision.compute) {  // a scale belongs to its type
    loss_scale_.scale = json.at("loss_scale").get<double>();
    loss_scale_.good_steps = json.at("loss_scale_good_steps").get<int64_t>();
  }
  loss_scale_.num_skipped = json.at("steps_skipped").get<int64_t>();
  if (fp8_) fp8_->restore(json.value("fp8_scales", ""));  // those of another precision are measured anew
  part_->parameters().publish();
  part_->share_weights();
  if (server_) server_->restart(steps_done_);
  if (local_) local_->restart();
  start_reading();
}

}  // namespace trireme
