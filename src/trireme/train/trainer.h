// An engine that reads its own samples: what one worker of `trireme train` does.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/data/open_data.h"
#include "trireme/train/engine.h"

namespace trireme {

struct Evaluation {
  double loss = 0;        ///< sum of losses ÷ their number, as Model::score() counts them
  double perplexity = 0;  ///< exp(loss)
  double accuracy = 0;    ///< correct predictions ÷ predictions; NaN if there is no right or wrong
  int64_t num_samples = 0;
};

class Trainer : public Engine {
 public:
  Trainer(World& world, std::shared_ptr<Model> model, const Config& config, const OpenedData& data);

  using Engine::step;
  /// Runs one optimizer step on the next batch. `stop` asks all workers to stop; the report says when any has.
  StepReport step(bool stop = false);
  /// Evaluates up to `num_batches` batches of the global size of held-out data, in stored order, divided over all
  /// workers. `told` is called with the number of samples done, as far as this worker knows. Collective; returns zeros
  /// without held-out data.
  Evaluation evaluate(int64_t num_batches, const std::function<void(int64_t done, int64_t samples)>& told = {});
  /// Also continues reading samples from the restored position.
  void restore(const std::string& meta, bool keep_position = false) override;

 private:
  SampleParts parts_to_read() const { return {part_->has_first(), part_->has_last()}; }
  void start_reading();

  const OpenedData data_;
};

}  // namespace trireme
