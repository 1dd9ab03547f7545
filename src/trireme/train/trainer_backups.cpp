// A trainer whose steps do not wait for the slowest workers: what counts is what the servers have summed.
#include <fmt/format.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/train/step_values.h"
#include "trireme/train/trainer.h"

namespace trireme {

/// Of the micro-batches of the step to come; none where nobody asks.
std::vector<torch::Tensor> Trainer::own_tokens() const {
  std::vector<torch::Tensor> tokens;
  for (int64_t i = 0; server_->needs_tokens() && i < std::ssize(micro_batches_); ++i) {
    tokens.push_back(inputs_->at(static_cast<size_t>(i)).input);
  }
  return tokens;
}

/// True where the step has ended without this worker, who need not compute it any more.
bool Trainer::skip_late_step(StepReport& report) {
  if (!server_->has_backups()) return false;
  const std::optional<ServerAggregation::RoundEnd> end = server_->ended();
  if (!end) return false;
  server_->skip_step();
  take_end(report, *end);
  return true;
}

void Trainer::apply_with_backups(StepReport& report) {
  const double factor = gradient_factor_ / loss_scale_.scale, clip = config_.train.clip;
  const auto decide = [&](double squares, const std::vector<double>& values) {
    ServerAggregation::RoundEnd end;
    end.loss = values[kLoss] / static_cast<double>(plan_.num_micro_batches);
    end.norm = std::sqrt(squares) * factor;
    end.stop = values[kStop] > 0;
    end.applies = std::isfinite(end.loss) && std::isfinite(end.norm);
    end.factor = clip > 0 && end.norm > clip ? factor * clip / end.norm : factor;
    return end;
  };
  take_end(report, server_->end_round(report.learning_rate, decide));
}

/// The same on all workers, who therefore agree without a word between them.
void Trainer::take_end(StepReport& report, const ServerAggregation::RoundEnd& end) {
  report.loss = end.loss;
  report.gradient_norm = end.norm;
  report.stop_wanted = end.stop;
  report.skipped = !end.applies;
  const bool is_scaled = compute_type_ == torch::kFloat16 && std::isfinite(end.loss) && loss_scale_.scale > 1;
  if (report.skipped && !is_scaled) {
    ++bad_steps_;
    report.bad = fmt::format("step {}: the {} of the workers that counted {} not finite", steps_done_,
                             std::isfinite(end.loss) ? "gradients" : "loss", std::isfinite(end.loss) ? "are" : "is");
    if (config_.train.on_nan == "stop")
      throw Error(report.bad, "go back to the newest checkpoint with a lower optimizer.lr");
    return;
  }
  if (compute_type_ == torch::kFloat16) {
    loss_scale_.update(!report.skipped, config_.precision.loss_scale_growth_every);
  }
}

}  // namespace trireme
