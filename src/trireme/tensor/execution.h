// Operators whose local computation is more than the operator on local tensors.
#pragma once

#include "trireme/tensor/decision.h"

namespace trireme {

/// A call being executed: `given` are the caller's arguments, the top of the stack holds the local ones.
struct LocalCall {
  const c10::OperatorHandle& op;
  const OperatorInfo& info;
  const Decision& decision;
  DeviceMesh& mesh;
  std::span<const c10::IValue> given;
};

/// Replaces the arguments on the stack by the local results.
void execute(const LocalCall& call, torch::jit::Stack& stack);

}  // namespace trireme
