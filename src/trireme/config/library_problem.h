// Why a model library does not load, and what to do about it.
#pragma once

#include <string>

namespace trireme {

struct LibraryProblem {
  std::string problem, cure;
};

/// What dlopen() of `path` says. Names of missing symbols are demangled.
LibraryProblem problem_of_loading(const std::string& path, std::string said);
LibraryProblem without_macro();
/// `built_for`, `wanted`: such as "Trireme 0.2.0, libtorch 2.5.1".
LibraryProblem of_other_version(const std::string& built_for, const std::string& wanted);

/// Throws UsageError: "model.library = PATH: PROBLEM", then the cure.
[[noreturn]] void refuse_library(const std::string& path, const LibraryProblem& problem);

}  // namespace trireme
