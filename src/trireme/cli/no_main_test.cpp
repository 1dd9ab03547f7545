// What main.cpp gives the commands, for tests, which have a main of their own.
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"

namespace trireme::cli {

std::string version_text() { return "0.0.0"; }
std::string program_folder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }
std::string tensor_program() { throw Error("tests of this folder start no workers"); }
void replace_process(const std::vector<std::string>&) { throw Error("tests of this folder replace no process"); }

}  // namespace trireme::cli
