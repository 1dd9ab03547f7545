#include "trireme/simulate/memory_over_time.h"

namespace trireme {

std::vector<MemoryPoint> memory_over_time(const Simulation& simulation, size_t rank) {
  const PlayedRank& played = simulation.ranks[rank].played;
  MemoryPoint point{0, simulation.ranks[rank].memory};
  point.memory.activations = 0;
  std::vector<MemoryPoint> points = {point};
  const auto holds = [&](double seconds, double activations) {
    point.seconds = seconds;
    point.memory.activations = activations;
    if (points.back().seconds >= point.seconds) points.pop_back();  // back-to-back computations
    points.push_back(point);
  };
  for (const Span& span : played.spans) {
    const StageCost& stage = simulation.stages[span.instruction.stage_index()];
    const OpCode op = span.instruction.op;
    holds(span.start_ms / 1e3, span.activations + stage.working_bytes_of(op));
    holds(span.end_ms / 1e3, span.activations - (makes_weight_gradient(op) ? stage.activation_bytes : 0));
  }
  holds(played.end, point.memory.activations);
  return points;
}

}  // namespace trireme
