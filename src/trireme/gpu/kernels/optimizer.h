// Optimizer steps over all parameters in one launch, and the norm of all gradients.
//
// What changes from step to step lies in device memory (StepValues), so that a captured graph can be run again. The
// arithmetic is that of optimizer/kernels.h, element by element, without contraction, the sum of squares in the
// same tree, and the scalars in double as in train/optimizer.cpp: the same bits as on a CPU for the same gradients.
// Threads: one at a time. Nothing blocks but the constructor. Errors: those of CUDA's calls, as Error.
#pragma once

#include <vector>

#include "trireme/gpu/types.h"

namespace trireme::gpu {

/// A parameter of `count` elements. Pointers are to device memory.
struct ParameterSpan {
  float* master = nullptr;
  void* compute = nullptr;  ///< a copy in the compute type, or null
  const void* gradient = nullptr;
  const void* second_gradient = nullptr;  ///< of a second use of the parameter, added to the first; or null
  float* first = nullptr;                 ///< momentum or first moment; null where there is none
  float* second = nullptr;                ///< second moment
  int64_t count = 0;
  bool decays = false;
};

struct OptimizerSettings {
  enum class Kind : uint8_t { kSgd, kAdam, kAdamW } kind = Kind::kAdamW;
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
  double weight_decay = 0;
  float momentum = 0;
  bool nesterov = false;
  double clip = 0;  ///< largest norm of the gradients after `factor`; 0: none
};

/// In device memory: written by the host before a step, and by the step itself.
struct StepValues {
  double factor = 1;       ///< from summed gradients to averages
  double lr = 0;           ///< of this step
  double correction1 = 1;  ///< 1 − beta1^t
  double correction2 = 1;  ///< 1 − beta2^t
  double norm = 0;         ///< written: of the gradients times factor
  double skipped = 0;      ///< written: 1 where the norm is not finite; then nothing is updated
};

/// The parameters cut into blocks of equal length, in device memory. Owner: the optimizer. The spans' memory must stay.
class ParameterBlocks {
 public:
  ParameterBlocks(const std::vector<ParameterSpan>& spans, Type gradient_type, Type compute_type);
  ~ParameterBlocks();
  ParameterBlocks(const ParameterBlocks&) = delete;

  int64_t num_blocks() const;
  /// Σ g² of each block, span by span, into pinned memory of the host: what a norm over parameters that others have can
  /// be made of. Enqueued.
  void block_squares(double* host, Stream stream);
  /// values->norm and values->skipped from all gradients. Sums over fixed blocks that meet in a fixed tree.
  void gradient_norm(StepValues* values, Stream stream);
  /// One step, with clipping by values->norm; nothing where values->skipped.
  void update(const OptimizerSettings& settings, const StepValues* values, Stream stream);

 private:
  struct Inside;
  Inside* inside_;
};

}  // namespace trireme::gpu
