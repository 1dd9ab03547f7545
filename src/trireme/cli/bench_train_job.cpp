#include "trireme/cli/bench_train_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/cli/bench_comm_crew.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/peer_python.h"
#include "trireme/elastic/local_launch.h"
#include "trireme/elastic/process.h"

namespace trireme::cli {
namespace {

constexpr const char* kDdpScript = "peer_ddp.py";
constexpr const char* kGpuScript = "peer_gpt2.py";
constexpr int kNoTorch = 42;  // as in those scripts
constexpr int kProfiledSteps = 2;

/// While it lives, what this process and its children write to stdout goes to a file in memory.
class StdoutInMemory {
 public:
  StdoutInMemory() : file_(memfd_create("trireme-bench", MFD_CLOEXEC)) {
    std::fflush(stdout);
    before_ = Fd(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
    if (file_.get() < 0 || before_.get() < 0 || dup2(file_.get(), STDOUT_FILENO) < 0) {
      throw SystemError("send the workers' output to memory", errno);
    }
  }
  ~StdoutInMemory() { dup2(before_.get(), STDOUT_FILENO); }
  StdoutInMemory(const StdoutInMemory&) = delete;

  std::string text() const {
    std::string text(static_cast<size_t>(std::max<off_t>(0, lseek(file_.get(), 0, SEEK_END))), '\0');
    const ssize_t length = pread(file_.get(), text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, length)));
    return text;
  }

 private:
  Fd file_, before_;
};

struct Ended {
  LaunchReport report;
  std::string output;
};

Ended launch_quietly(const LocalLaunch& launch) {
  const StdoutInMemory output;
  Ended ended;
  ended.report = launch_locally(launch);
  if (ended.report.interrupted_by != 0) throw Interrupted{ended.report.interrupted_by};
  ended.output = output.text();
  return ended;
}

/// The words that both scripts know.
void add_sizes(std::vector<std::string>& argv, const BenchTrainCase& measured, int64_t steps, int64_t warmup) {
  const ModelConfig& model = measured.config.model;
  const std::pair<const char*, int64_t> words[] = {{"--layers", model.layers}, {"--hidden", model.hidden},
                                                   {"--heads", model.heads},   {"--seq", model.seq},
                                                   {"--vocab", model.vocab},   {"--batch", measured.samples_per_step},
                                                   {"--steps", steps},         {"--warmup", warmup}};
  for (const auto& [name, value] : words) argv.insert(argv.end(), {name, std::to_string(value)});
}

bool has_peer_shape(const ModelConfig& model) {
  return model.kind == ModelKind::kGpt2 && model.tied && model.ffn == 4 * model.hidden && model.dropout == 0;
}
constexpr const char* kPeerShape =
    "its yardstick is a GPT-2 with tied embeddings, model.ffn = 4 model.hidden and no dropout";

nlohmann::json parse(const std::string& who, const std::string& output) {
  nlohmann::json json = nlohmann::json::parse(output, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw Error(fmt::format("{} printed no JSON object, but: {}", who, output.substr(0, 200)));
  return json;
}

}  // namespace

nlohmann::json run_ours(const BenchTrainCase& measured, int64_t warmup) {
  LocalLaunch launch;
  launch.num_processes = measured.num_workers;
  launch.argv = {tensor_program(), "train", "--bench", "--warmup", std::to_string(warmup)};
  if (measured.config.train.device == "cuda") {
    launch.argv.insert(launch.argv.end(), {"--profile", std::to_string(kProfiledSteps)});
  }
  const std::vector<std::string> rest = measured.arguments.to_words();
  launch.argv.insert(launch.argv.end(), rest.begin(), rest.end());
  launch.environment = worker_environment(measured.config);
  const Ended ended = launch_quietly(launch);
  if (ended.report.exit_code != 0) throw Error(fmt::format("layout {}: {}", measured.name, ended.report.text()));
  return parse("trireme-tensor train --bench", ended.output);
}

nlohmann::json run_tensor_program(const std::vector<std::string>& words, int num_processes,
                                  const std::vector<std::pair<std::string, std::string>>& variables) {
  LocalLaunch launch;
  launch.num_processes = num_processes;
  launch.argv = {tensor_program()};
  launch.argv.insert(launch.argv.end(), words.begin(), words.end());
  launch.environment = variables;
  const Ended ended = launch_quietly(launch);
  if (ended.report.exit_code != 0) throw Error(fmt::format("trireme-tensor {}: {}", words.at(0), ended.report.text()));
  return parse("trireme-tensor " + words.at(0), ended.output);
}

namespace {

nlohmann::json run_peer(const char* script, const LocalLaunch& launch) {
  const Ended ended = launch_quietly(launch);
  if (ended.report.exit_code == kNoTorch) {
    throw Error(fmt::format("TRIREME_PYTHON={} has no PyTorch", peer_python()), kInstallTorch);
  }
  if (ended.report.exit_code != 0) throw Error(fmt::format("{}: {}", script, ended.report.text()));
  // Compilers and libraries may have spoken before it.
  const size_t end = ended.output.find_last_not_of('\n');
  const size_t start = end == std::string::npos ? std::string::npos : ended.output.rfind('\n', end);
  return parse(script, start == std::string::npos ? ended.output : ended.output.substr(start + 1));
}

}  // namespace

nlohmann::json run_ddp(const BenchTrainCase& measured, int64_t steps, int64_t warmup) {
  LocalLaunch launch;
  launch.num_processes = measured.num_workers;
  launch.argv = {peer_python(), peer_script(kDdpScript), "--mode", measured.num_workers > 1 ? "ddp" : "single"};
  add_sizes(launch.argv, measured, steps, warmup);
  launch.environment = {{"OMP_NUM_THREADS", "1"}, {"GLOO_SOCKET_IFNAME", "lo"}};
  return run_peer(kDdpScript, launch);
}

nlohmann::json run_torch(const BenchTrainCase& measured, const std::string& mode, int64_t steps, int64_t warmup) {
  LocalLaunch launch;
  launch.argv = {peer_python(), peer_script(kGpuScript), "--mode", mode};
  add_sizes(launch.argv, measured, steps, warmup);
  return run_peer(kGpuScript, launch);
}

std::string ddp_problem(const Config& config) {
  if (!has_peer_shape(config.model)) return kPeerShape;
  if (config.precision.compute != "float32") return "its yardstick computes in float32";
  if (config.optimizer.kind != "adamw" || config.train.clip != 0) {
    return "its yardstick is AdamW without clipping; set optimizer.kind=adamw and train.clip=0";
  }
  if (config.train.threads != 1) return "its yardstick has one thread a worker; set train.threads=1";
  return peer_problem(kDdpScript);
}

std::string torch_problem(const BenchTrainCase& measured) {
  const Config& config = measured.config;
  if (!has_peer_shape(config.model)) return kPeerShape;
  if (measured.num_workers > 1) return "its yardstick has one worker; set parallel.dp=1";
  if (config.precision.compute != "bfloat16")
    return "its yardstick computes in bfloat16; set precision.compute=bfloat16";
  if (config.optimizer.kind != "adamw" || config.train.clip != 1) {
    return "its yardstick is AdamW with clipping; set optimizer.kind=adamw and train.clip=1";
  }
  if (config.train.micro_batch != measured.samples_per_step) {
    return "its yardstick computes the batch at once; set train.micro_batch to train.global_batch";
  }
  return peer_problem(kGpuScript);
}

}  // namespace trireme::cli
