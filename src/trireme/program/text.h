// Programs as text and as JSON, both ways. Reading throws UsageError that names the line, the word and what was
// expected.
#pragma once

#include <string>
#include <string_view>

#include "trireme/program/instruction.h"

namespace trireme {

/// "Forward", "SendActivation", …
std::string_view name_of(OpCode op);

/// "Backward stage 1 micro-batch 3 += slot 0"; what an instruction does not say is left out.
std::string instruction_to_text(const Instruction& instruction);
Instruction instruction_from_text(std::string_view line);

/// Lines "name: values" that say what Program holds beside its instructions, an empty line, one instruction a line.
std::string program_to_text(const Program& program);
Program program_from_text(std::string_view text);

/// One object; instructions are objects with `op` and what else they say.
std::string program_to_json(const Program& program);
Program program_from_json(std::string_view json);

}  // namespace trireme
