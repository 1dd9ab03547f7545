// Peers in Python, which benchmarks compare with: the interpreter in $TRIREME_PYTHON, and the scripts of bench/.
#pragma once

#include <string>

namespace trireme::cli {

/// How to have PyTorch for comparisons.
extern const char* const kInstallTorch;

/// $TRIREME_PYTHON, or nothing.
std::string peer_python();
/// A script such as "peer_gloo.py": beside the program, where an installation keeps it, or in the tree that this was
/// built from. Empty where it is not.
std::string peer_script(const std::string& name);
/// Why the script cannot be started, and what to do about it; empty when it can. Whether the interpreter has PyTorch is
/// seen when it runs.
std::string peer_problem(const std::string& script);

}  // namespace trireme::cli
