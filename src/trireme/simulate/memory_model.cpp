#include "trireme/simulate/memory_model.h"

#include <algorithm>

namespace trireme {

StateBytes state_bytes(const JobLayout& layout) {
  const double e = bytes_of(layout.compute);
  StateBytes bytes{.weights = e, .gradients = e, .optimizer = layout.optimizer_state};
  if (e < 4) {
    bytes.optimizer += 4;  // the float32 weights that are updated
    if (layout.float32_gradients) bytes.gradients += 4;
  }
  return bytes;
}

StateBytes held_bytes(const JobLayout& layout) {
  StateBytes bytes = state_bytes(layout);
  if (layout.offload || layout.servers > 0) bytes.optimizer = 0;
  return bytes;
}

StateBytes sharded(const StateBytes& whole, int zero, double replicas) {
  StateBytes bytes = whole;
  if (zero >= 1) bytes.optimizer /= replicas;
  if (zero >= 2) bytes.gradients /= replicas;
  if (zero >= 3) bytes.weights /= replicas;
  return bytes;
}

RankMemory static_memory(const Job& job, const std::vector<const StageCost*>& stages) {
  const JobLayout& layout = job.layout;
  const double replicas = static_cast<double>(layout.num_replicas());
  const StateBytes whole = held_bytes(layout);
  const StateBytes dense = sharded(whole, layout.zero, replicas);
  const StateBytes expert = sharded(whole, layout.zero, replicas / static_cast<double>(layout.ep));
  RankMemory memory;
  double largest_part = 0;
  for (const StageCost* stage : stages) {
    const double experts = stage->sum.expert_parameters, others = stage->sum.parameters - experts;
    memory.weights += others * dense.weights + experts * expert.weights;
    memory.gradients += others * dense.gradients + experts * expert.gradients;
    memory.optimizer += others * dense.optimizer + experts * expert.optimizer;
    for (const StagePart& part : stage->parts) largest_part = std::max(largest_part, part.parameters);
  }
  if (replicas > 1) {
    // ZeRO-3 holds the part in use and the next one, and a part's gradients until they are scattered; ZeRO-2 those.
    if (layout.zero == 3) memory.buffers += 2 * largest_part * whole.weights;
    if (layout.zero >= 2) memory.buffers += largest_part * whole.weights;
  }
  if (layout.pp > 1) memory.buffers += 2 * message_bytes(job) * static_cast<double>(layout.tp);  // receives under way
  return memory;
}

}  // namespace trireme
