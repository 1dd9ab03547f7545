#include "trireme/program/instruction.h"

#include <fmt/format.h>

namespace trireme {

std::string Instruction::to_string() const {
  const std::string where = group < 0 ? "" : fmt::format(" group {}", group);
  switch (op) {
    case OpCode::kForward:
      return fmt::format("Forward micro-batch {}", micro_batch);
    case OpCode::kBackward:
      return fmt::format("Backward micro-batch {} {} slot {}", micro_batch, add ? "+=" : "->", slot);
    case OpCode::kAddSlot:
      return fmt::format("AddSlot{} slot {} += slot {}", where, slot, from_slot);
    case OpCode::kAllReduce:
      return fmt::format("AllReduce{}", where);
    case OpCode::kOptimizerStep:
      return "OptimizerStep";
  }
  return "?";
}

std::string Program::to_string() const {
  std::string text;
  for (const Instruction& instruction : instructions) text += instruction.to_string() + "\n";
  return text;
}

}  // namespace trireme
