// The programs that measurements start: `trireme-tensor`, and peers in Python by the interpreter in $TRIREME_PYTHON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/memory_file.h"
#include "trireme/config/training.h"
#include "trireme/launch/local_launch.h"

namespace trireme::measure {

/// The folder of this program, which also holds the companion programs.
std::string program_folder();
/// `trireme-tensor` in that folder. Throws Error with the cure where the build had no libtorch.
std::string tensor_program();
/// How `trireme-tensor train` gets a training: as a value, in a file that lives as long as this.
class TrainingHandoff {
 public:
  explicit TrainingHandoff(const Training& training);

  /// The command line of a worker; `flags` are more words for it.
  std::vector<std::string> argv(const std::vector<std::string>& flags) const;
  /// Its workers on this machine, which tell why they fail.
  LocalLaunch launch(int num_processes, const std::vector<std::string>& flags) const;

 private:
  std::vector<std::pair<std::string, std::string>> environment_;
  MemoryFile file_;
};

/// The library with the GPU code of this build; empty where the build has none.
std::string gpu_library();
/// The words of gpu/no_cuda.cpp.
extern const char* const kNoGpuCode;
/// Throws UsageError with the cure where the build has no GPU code.
void check_gpu_code();

/// Runs the job and returns the JSON object that its first worker prints. Blocks until it ends; what it writes to
/// stdout goes to memory, so one at a time in a process. `name` is the job's in errors. Throws Error when the job fails
/// or prints something else, Interrupted when a signal stopped it.
nlohmann::json run_for_json(const LocalLaunch& launch, const std::string& name);
/// Runs `trireme-tensor WORDS` on so many processes of this machine, with variables of their own.
nlohmann::json run_tensor_program(const std::vector<std::string>& words, int num_processes,
                                  const std::vector<std::pair<std::string, std::string>>& variables);

/// $TRIREME_PYTHON, or nothing.
std::string peer_python();
/// A script such as "peer_gloo.py" in the program's folder or in share/trireme. Empty where it is not.
std::string peer_script(const std::string& name);
/// Why the script cannot be started, and what to do about it; empty when it can. Whether the interpreter has PyTorch is
/// seen when it runs.
std::string peer_problem(const std::string& script);
/// How to have PyTorch for comparisons.
extern const char* const kInstallTorch;

}  // namespace trireme::measure
