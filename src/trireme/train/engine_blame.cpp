// Finds where a number that is not finite first occurred in a step.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/train/broadcast_result.h"
#include "trireme/train/engine.h"

namespace trireme {
namespace {

struct FoundBad {
  int32_t micro_batch = -1;
  char parameter[124] = {};
};

}  // namespace

std::string BadNumber::to_string(int64_t step) const {
  if (!reproduced) {
    return fmt::format(
        "step {}: the summed gradients are not finite, but every worker's own are when computed again: a fault of "
        "memory, "
        "processor or network, or gradients whose sum is beyond float32",
        step);
  }
  return fmt::format("step {}: {} is not finite, first on rank {} in micro-batch {}", step,
                     parameter == "loss" ? "the loss" : "the gradient of " + parameter, rank, micro_batch);
}

Where BadNumber::where(int64_t step) const {
  if (!reproduced) return {.step = step};
  return {.rank = rank, .step = step, .micro_batch = micro_batch, .parameter = parameter};
}

/// The weights have not changed, and everything else is a function of seed and step, so each worker computes its own
/// part again, without communication, and checks every gradient as it is computed.
std::optional<BadNumber> Engine::find_bad_number() {
  FoundBad found;
  const auto note = [&](const std::string& name) {
    if (found.micro_batch >= 0) return;
    found.micro_batch = steps_->executor().micro_batch();
    std::strncpy(found.parameter, name.c_str(), sizeof found.parameter - 1);
  };
  std::vector<std::function<void(size_t, const torch::Tensor&)>> usual;
  for (const StageSet::Stage& stage : part_->stages()) {
    GradientStore& store = *stage.gradients;
    usual.push_back(store.on_gradient);
    store.on_gradient = [&, injected = usual.back()](size_t source, const torch::Tensor& gradient) {
      if (injected) injected(source, gradient);
      if (found.micro_batch < 0 && !torch::isfinite(gradient).all().item<bool>()) note(store.sources()[source].name);
    };
  }
  on_loss_ = [&](const torch::Tensor& loss) {
    if (!std::isfinite(loss.item<float>())) note("loss");
  };
  if (fp8_) fp8_->copy_weights();  // with the current scales
  steps_->executor().replay();
  on_loss_ = {};
  for (size_t i = 0; i < usual.size(); ++i) part_->stages()[i].gradients->on_gradient = usual[i];

  std::vector<uint8_t> own(sizeof found), all(sizeof found * static_cast<size_t>(world_.size()));
  std::memcpy(own.data(), &found, sizeof found);
  world_.comm().all_gather(own, all);
  // A bad number in one stage spreads to earlier stages in the backward pass, so within a micro-batch the latest stage
  // is to blame.
  std::optional<BadNumber> first;
  int first_stage = 0;
  for (int rank = 0; rank < world_.size(); ++rank) {
    std::memcpy(&found, all.data() + sizeof found * static_cast<size_t>(rank), sizeof found);
    const int stage = static_cast<int>(layout_.pipeline_rank_of(rank));
    if (found.micro_batch < 0) continue;
    if (first && std::pair(first->micro_batch, -first_stage) <= std::pair<int64_t, int>(found.micro_batch, -stage)) {
      continue;
    }
    first = BadNumber{rank, found.micro_batch, found.parameter, true};
    first_stage = stage;
  }
  return first;
}

/// Describes what was wrong with a bad step; throws on all ranks if train.on_nan = "stop".
std::string Engine::blame(const StepEnd& end) {
  const bool is_spoiled = end.verdict == Verdict::kSpoiled;
  const BadNumber bad = is_spoiled ? BadNumber{} : find_bad_number().value_or(BadNumber{});
  const std::string words = is_spoiled
                                ? fmt::format("step {}: the {} not finite, and the weights have been updated with it",
                                              steps_done_, end.loss_is_finite ? "gradients are" : "loss is")
                                : bad.to_string(steps_done_);
  if (config_.train.on_nan != OnNan::kStop) return words;
  throw_once(world_.comm(), Error(words,
                                  is_spoiled ? "go back to the newest checkpoint with a lower optimizer.lr"
                                             : "try a lower optimizer.lr or train.clip = 1; train.on_nan = \"skip\" or "
                                               "\"rollback\" would go on",
                                  bad.where(steps_done_)));
}

}  // namespace trireme
