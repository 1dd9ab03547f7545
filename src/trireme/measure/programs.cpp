#include "trireme/measure/programs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/config/arguments.h"
#include "trireme/launch/process.h"
#include "trireme/measure/crew.h"

namespace trireme::measure {
namespace {

namespace fs = std::filesystem;

constexpr int kNoTorch = 42;  // the exit code of bench/peer_*.py

/// While it lives, what this process and its children write to stdout goes to a file in memory.
class StdoutInMemory {
 public:
  StdoutInMemory() : file_("trireme-bench") {
    std::fflush(stdout);
    before_ = Fd(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    if (before_.get() < 0 || dup2(file_.fd(), STDOUT_FILENO) < 0) {
      throw SystemError("send the workers' output to memory", errno);
    }
  }
  ~StdoutInMemory() { dup2(before_.get(), STDOUT_FILENO); }
  StdoutInMemory(const StdoutInMemory&) = delete;

  std::string text() const { return file_.text(); }

 private:
  MemoryFile file_;
  Fd before_;
};

}  // namespace

std::string program_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

std::string tensor_program() {
  const std::string path = program_folder() + "/trireme-tensor";
  if (access(path.c_str(), X_OK) != 0) {
    throw Error(
        "this trireme was built without libtorch: there is no " + path,
        "./trireme in the source tree brings libtorch and builds it; trireme doctor shows what else is missing");
  }
  return path;
}

TrainingHandoff::TrainingHandoff(const Training& training)
    : environment_(worker_environment(training.config)), file_("trireme-training") {
  file_.write(training_to_json(training));
}

std::vector<std::string> TrainingHandoff::argv(const std::vector<std::string>& flags) const {
  std::vector<std::string> argv = {tensor_program(), "train", file_.path()};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

LocalLaunch TrainingHandoff::launch(int num_processes, const std::vector<std::string>& flags) const {
  LocalLaunch launch;
  launch.num_processes = num_processes;
  launch.argv = argv(flags);
  launch.environment = environment_;
  launch.asks_why = true;
  return launch;
}

const char* const kNoGpuCode = "this build has no GPU code";

std::string gpu_library() {
  for (const char* folder : {"/../lib/", "/"}) {
    const fs::path path = fs::path(program_folder() + folder + "libtrireme_gpu.so").lexically_normal();
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

void check_gpu_code() {
  if (!gpu_library().empty()) return;
  throw UsageError(kNoGpuCode, "build with cmake --preset cuda, or use train.device = \"cpu\"");
}

nlohmann::json run_for_json(const LocalLaunch& launch, const std::string& name) {
  const StdoutInMemory output;
  const LaunchReport report = launch_locally(launch);
  if (report.interrupted_by != 0) throw Interrupted{report.interrupted_by};
  if (report.exit_code == kNoTorch && launch.argv.front() == peer_python()) {
    throw Error(fmt::format("TRIREME_PYTHON={} has no PyTorch", peer_python()), kInstallTorch);
  }
  if (report.exit_code != 0) {
    throw Error(fmt::format("{}: {}", name, report.text()), {}, report.failure().where());
  }
  const std::string text = output.text();
  // Libraries may have spoken before the object, which is the whole output or its last line.
  const size_t end = text.find_last_not_of('\n');
  const size_t line = end == std::string::npos ? std::string::npos : text.rfind('\n', end);
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() && line != std::string::npos) {
    json = nlohmann::json::parse(text.substr(line), nullptr, /*allow_exceptions=*/false);
  }
  if (!json.is_object()) throw Error(fmt::format("{} printed no JSON object, but: {}", name, text.substr(0, 200)));
  return json;
}

nlohmann::json run_tensor_program(const std::vector<std::string>& words, int num_processes,
                                  const std::vector<std::pair<std::string, std::string>>& variables) {
  LocalLaunch launch;
  launch.num_processes = num_processes;
  launch.argv = {tensor_program()};
  launch.argv.insert(launch.argv.end(), words.begin(), words.end());
  launch.environment = variables;
  return run_for_json(launch, "trireme-tensor " + words.at(0));
}

const char* const kInstallTorch =
    "to have it: python3 -m venv ~/peer && ~/peer/bin/pip install torch==2.11.0 numpy (4.7 GB), "
    "then export TRIREME_PYTHON=~/peer/bin/python";

std::string peer_python() {
  const char* const path = std::getenv("TRIREME_PYTHON");
  return path == nullptr ? "" : path;
}

std::string peer_script(const std::string& name) {
  const fs::path folder = program_folder();
  for (const fs::path& place : {folder, folder / "../share/trireme"}) {
    std::error_code ignored;
    const fs::path path = fs::weakly_canonical(place / name, ignored);
    if (fs::exists(path, ignored)) return path;
  }
  return {};
}

std::string peer_problem(const std::string& script) {
  if (peer_python().empty()) return fmt::format("TRIREME_PYTHON names no Python with PyTorch\n  {}", kInstallTorch);
  try {
    find_program(peer_python());
  } catch (const UsageError&) {
    return fmt::format("TRIREME_PYTHON={} cannot be run\n  {}", peer_python(), kInstallTorch);
  }
  if (peer_script(script).empty()) return fmt::format("there is no {} next to trireme or in share/trireme", script);
  return {};
}

}  // namespace trireme::measure
