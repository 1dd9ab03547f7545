// Operators whose local part is more than the operator on local tensors.
#pragma once

#include "trireme/tensor/decision.h"

namespace trireme {

/// A call under way: `given` are the arguments as the caller passed them, the top of the stack holds the local ones.
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
