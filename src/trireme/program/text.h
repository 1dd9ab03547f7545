// Instructions as text, programs as JSON. Reading throws UsageError that names what is wrong.
#pragma once

#include <string>
#include <string_view>

#include "trireme/program/instruction.h"

namespace trireme {

/// "Forward", "SendActivation", …
std::string_view name_of(OpCode op);

/// "Backward stage 1 micro-batch 3 += slot 0"; what an instruction does not say is left out.
std::string instruction_to_text(const Instruction& instruction);

/// One object; instructions are objects with `op` and what else they say.
std::string program_to_json(const Program& program);
Program program_from_json(std::string_view json);

}  // namespace trireme
