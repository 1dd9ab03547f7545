#include "trireme/simulate/memory_model.h"

#include <algorithm>

#include "trireme/program/zero.h"

namespace trireme {

StateBytes state_bytes(const Job& job) {
  const Layout& layout = job.layout;
  const double e = bytes_of(layout.compute);
  StateBytes bytes{.weights = e, .gradients = e, .optimizer = layout.optimizer_state};
  if (e < 4) {
    bytes.optimizer += 4;  // float32 master weights
    if (layout.float32_gradients) bytes.gradients = job.software == Software::kTrireme ? 4 : e + 4;
  }
  return bytes;
}

StateBytes held_bytes(const Job& job) {
  const Layout& layout = job.layout;
  StateBytes bytes = state_bytes(job);
  if (layout.offload || layout.servers > 0) bytes.optimizer = 0;
  if (layout.offload_weights) bytes.weights = 0;
  return bytes;
}

StateBytes sharded(const StateBytes& whole, int zero, double replicas) {
  StateBytes bytes = whole;
  if (zero >= 1) bytes.optimizer /= replicas;
  if (zero >= 2) bytes.gradients /= replicas;
  if (zero >= 3) bytes.weights /= replicas;
  return bytes;
}

namespace {

/// Parameters of a tied embedding, which is gathered and scattered separately from the layers around it.
double tied_weights(const Job& job) {
  if (!job.model.is_language() || !job.model.tied) return 0;
  return static_cast<double>(job.model.vocab * job.model.hidden) / static_cast<double>(job.layout.tp);
}

/// Parameters of biases and norms in a transformer block.
double vectors_of_block(const Job& job) {
  const auto h = static_cast<double>(job.model.hidden), t = static_cast<double>(job.layout.tp);
  return job.model.kind == ModelKind::kGpt2 ? 6 * h + 7 * h / t : job.model.kind == ModelKind::kLlama ? 2 * h : 0;
}

/// Buffers of Trireme's runtime. ZeRO-3: weights and gradients of a layer and the next one. ZeRO-2: gradients of two
/// tensors. A single worker keeps its gradients in place.
double own_buffers(const Job& job, double largest_part, const StateBytes& whole) {
  const double tied = tied_weights(job);
  const double gradients = job.layout.num_replicas() > 1 ? whole.gradients : 0;
  if (job.layout.zero == 3) return (2 * largest_part + tied) * (whole.weights + gradients);
  // The largest tensor of a block is a third of it.
  return job.layout.zero == 2 ? (2 * largest_part / 3 + tied) * whole.gradients : 0;
}

}  // namespace

double bucket_bytes_of(const Layout& layout, double parameters, bool own_runtime) {
  constexpr double kPublished = 25e6;  // default of PyTorch's DistributedDataParallel
  if (layout.bucket_bytes > 0) return layout.bucket_bytes;
  if (!own_runtime) return kPublished;
  const double own = parameters / static_cast<double>(layout.tp * layout.pp);
  return derived_bucket_bytes(layout.zero < 2, own * layout.gradient_bytes());
}

RankMemory static_memory(const Job& job, const std::vector<const StageCost*>& stages, bool own_runtime) {
  const Layout& layout = job.layout;
  const double replicas = static_cast<double>(layout.num_replicas());
  const StateBytes held = held_bytes(job), whole = state_bytes(job);
  const StateBytes dense = sharded(held, layout.zero, static_cast<double>(layout.num_shards()));
  const StateBytes expert = sharded(held, layout.zero, replicas / static_cast<double>(layout.ep));
  RankMemory memory;
  double largest_part = 0, blocks = 0;
  for (const StageCost* stage : stages) {
    const double experts = stage->sum.expert_parameters, others = stage->sum.parameters - experts;
    memory.weights += others * dense.weights + experts * expert.weights;
    memory.gradients += others * dense.gradients + experts * expert.gradients;
    memory.optimizer += others * dense.optimizer + experts * expert.optimizer;
    for (const StagePart& part : stage->parts) {
      // The embedding is the first part of its stage.
      const bool has_tied = own_runtime && &part == &stage->parts.front() && stage->blocks.first == 0;
      largest_part = std::max(largest_part, part.parameters - (has_tied ? tied_weights(job) : 0));
    }
    blocks += std::min<double>(stage->blocks.last, static_cast<double>(job.model.layers) + 1) -
              std::max(stage->blocks.first, 1);
  }
  const bool are_sharded = replicas > 1, come_and_go = are_sharded || layout.offload_weights;
  if (own_runtime && come_and_go) {
    const double vectors = blocks * vectors_of_block(job);
    memory.weights += vectors * (whole.weights - dense.weights);
    memory.gradients += vectors * (whole.gradients - dense.gradients);
    memory.optimizer += vectors * (held.optimizer - dense.optimizer);
    memory.buffers += own_buffers(job, largest_part, whole);
  } else if (come_and_go) {
    // ZeRO-3 holds the weights of the part in use and the next one. ZeRO-2 and 3 hold a part's gradients until they are
    // scattered.
    if (layout.zero == 3) memory.buffers += 2 * largest_part * whole.weights;
    if (layout.zero >= 2 && are_sharded) memory.buffers += largest_part * whole.weights;
  }
  if (layout.pp > 1) memory.buffers += 2 * message_bytes(job) * static_cast<double>(layout.tp);  // posted receives
  return memory;
}

}  // namespace trireme
