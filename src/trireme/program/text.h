// Instructions as text, programs as JSON. Reading throws UsageError that says what is wrong.
#pragma once

#include <string>
#include <string_view>

#include "trireme/program/instruction.h"

namespace trireme {

/// "Forward", "SendActivation", …
std::string_view name_of(OpCode op);

/// "Backward stage 1 micro-batch 3 += slot 0"; fields that are not set are left out.
std::string instruction_to_text(const Instruction& instruction);

/// One JSON object; instructions are objects with `op` and the fields that are set.
std::string program_to_json(const Program& program);
/// Also reads programs of older versions, which lack some fields.
Program program_from_json(std::string_view json);

}  // namespace trireme
