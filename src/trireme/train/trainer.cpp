#include "trireme/train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "trireme/data/read_ahead.h"
#include "trireme/data/sample_stream.h"

namespace trireme {

Trainer::Trainer(World& world, std::shared_ptr<Model> model, const Config& config, const OpenedData& data)
    : Engine(world, std::move(model), config), data_(data) {
  require_targets(data_.train->shape().targets.size());
  seq_ = data_.train->shape().seq;
  start_reading();
}

void Trainer::start_reading() {
  const SampleParts parts = parts_to_read();
  if (parts == SampleParts{false, false}) return;
  const int64_t micro = layout_.micro_batch, own = std::ssize(micro_batches());
  inputs_->read_from(
      data_.train->shape(),
      std::make_unique<ReadAhead>(
          SampleStream(data_.train, static_cast<uint64_t>(config_.train.seed), SampleOrder::kShuffled, parts),
          [this, micro, own, batch = layout_.global_batch, start = samples_done_, next = int64_t{0}]() mutable {
            const int64_t number = next++;
            const int64_t micro_batch = micro_batches()[static_cast<size_t>(number % own)];
            return std::optional(BatchRange{start + number / own * batch + micro_batch * micro, micro});
          },
          ReadAheadOptions{.depth = static_cast<int>(std::max<int64_t>(1, config_.data.read_ahead * own))}));
}

StepReport Trainer::step(bool stop) {
  const auto start = Clock::now();
  const double data_s = inputs_->next();
  StepReport report = run_step(stop, start);
  report.data_s = data_s;
  return report;
}

Evaluation Trainer::evaluate(int64_t num_batches, const std::function<void(int64_t, int64_t)>& told) {
  if (!data_.held_out) return {};
  torch::NoGradGuard no_grad;
  const SampleStream stream(data_.held_out, 0, SampleOrder::kAsStored, parts_to_read());
  const int64_t samples = std::min(data_.held_out->size(), num_batches * layout_.global_batch);
  const int64_t blocks = (samples + layout_.micro_batch - 1) / layout_.micro_batch;
  // A GPU evaluates samples one by one: the logits of a whole micro-batch would need more memory than a training step.
  const int64_t together = device_.is_cuda() ? 1 : layout_.micro_batch, of_block = layout_.micro_batch / together;
  // Replicas take blocks in turn, and all run the same number of passes; surplus passes repeat the last sample and are
  // not counted. Each pass has its own entries, filled by one worker: adding the others' zeros changes nothing, so the
  // result does not depend on dp.
  const int64_t num_passes = (blocks + layout_.dp - 1) / layout_.dp * of_block;
  std::vector<double> sums(static_cast<size_t>(4 * blocks * of_block), 0.0);
  const auto first_of = [&](int64_t pass) {
    const int64_t block = pass % num_passes / of_block * layout_.dp + pass / num_passes;
    return block * layout_.micro_batch + pass % of_block * together;
  };
  std::map<int64_t, Tensors> targets;  // of running passes, on a rank that also has the first stage
  const auto read = [&](int64_t pass) {
    const int64_t first = std::min(first_of(pass), samples - 1);
    if (told) told(first, samples);
    const auto batch = std::make_shared<Batch>(stream.read(first, std::min(together, samples - first)));
    const Inputs inputs = tensors_of(batch, data_.held_out->shape());
    if (part_->has_last()) targets[pass] = inputs.targets;
    return inputs.inputs;
  };
  const auto count = [&](int64_t pass, const Tensors& outputs) {
    if (first_of(pass) >= samples) return;
    if (!part_->has_first()) read(pass);
    Tensors own = std::move(targets.extract(pass).mapped());
    for (torch::Tensor& target : own) target = target.to(device_);
    const Score score = part_->model().score(outputs, own);
    const auto at = static_cast<size_t>(4 * (first_of(pass) / together));
    sums[at] = score.loss;
    sums[at + 1] = score.correct;
    sums[at + 2] = static_cast<double>(score.predictions);
    sums[at + 3] = static_cast<double>(score.losses < 0 ? score.predictions : score.losses);
  };
  part_->gather_weights();
  policy_->refresh();
  run_passes(static_cast<int>(num_passes), data_.held_out->shape().seq, read, count);
  if (groups_.replicas()) groups_.replicas()->all_reduce(sums);
  groups_.sum_over_stages(sums);
  std::array<double, 4> all = {};
  for (int64_t block = 0; block < blocks; ++block) {
    for (size_t i = 0; i < all.size(); ++i) {
      double of_passes = 0;
      for (int64_t pass = block * of_block; pass < (block + 1) * of_block; ++pass) {
        of_passes += sums[4 * static_cast<size_t>(pass) + i];
      }
      all[i] += of_passes;
    }
  }
  const auto& [loss_sum, correct, predictions, losses] = all;
  const double loss = loss_sum / losses;
  return {loss, std::exp(loss), correct / predictions, samples};
}

void Trainer::restore(const std::string& meta, bool keep_position) {
  Engine::restore(meta, keep_position);
  start_reading();
}

}  // namespace trireme
