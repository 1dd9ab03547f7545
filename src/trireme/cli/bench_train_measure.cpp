#include "trireme/cli/bench_train_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/cli/bench_train_job.h"
#include "trireme/cli/commands.h"
#include "trireme/observe/progress.h"

namespace trireme::cli {
namespace {

constexpr std::chrono::seconds kGpuAnswer{5};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What the repeats of one case said.
struct Samples {
  std::vector<double> step_ms, ddp_step_ms;
  std::vector<std::vector<double>> parts_ms;
};

class Measurement {
 public:
  Measurement(const BenchTrainFlags& flags, BenchTrainPlan plan) : flags_(flags) {
    run_.plan = std::move(plan);
    const size_t count = run_.plan.cases.size();
    run_.results.resize(count);
    samples_.resize(count);
    run_.peak_tflops = flags.peak_tflops;
    if (run_.on_gpu()) run_.gpus = ask_for_gpus(Deadline::after(kGpuAnswer));
    if (flags.compare == "ddp") choose_compared();
    if (flags.compare == "torch") choose_peers();
  }

  BenchTrainRun run() {
    ProgressOptions shown;
    shown.label = "bench train";
    shown.total = (run_.plan.cases.size() + compared_.size() + run_.peers.size()) * static_cast<size_t>(flags_.repeats);
    Progress progress(shown);
    uint64_t done = 0;
    for (int repeat = 0; repeat < flags_.repeats; ++repeat) {
      for (size_t i = 0; i < run_.plan.cases.size(); ++i) {
        progress.update(done, run_.plan.cases[i].name);
        measure_ours(i);
        progress.update(++done, run_.plan.cases[i].name);
        if (!compared_.contains(i)) continue;
        progress.update(done, "PyTorch, " + run_.plan.cases[i].name);
        measure_ddp(i);
        ++done;
      }
      for (size_t i = 0; i < run_.peers.size();) {
        progress.update(done, "PyTorch, " + run_.peers[i].name);
        if (measure_peer(run_.peers[i])) {
          ++i;
        } else {
          run_.peers.erase(run_.peers.begin() + static_cast<std::ptrdiff_t>(i));
        }
        ++done;
      }
    }
    progress.finish();
    for (size_t i = 0; i < run_.results.size(); ++i) summarise(i);
    for (BenchTrainPeer& peer : run_.peers) summarise(peer);
    return std::move(run_);
  }

 private:
  /// Once a peer is known to be unable, it is not asked again.
  void choose_compared() {
    for (const size_t i : run_.plan.layouts) {
      const std::string problem = ddp_problem(run_.plan.cases[i].config);
      if (problem.empty()) {
        compared_.insert(i);
      } else {
        leave_out("PyTorch DDP", problem);
      }
    }
  }

  void choose_peers() {
    const std::string problem = torch_problem(run_.main_case());
    if (!problem.empty()) return leave_out("PyTorch", problem);
    for (const char* name : {"eager", "compiled"}) run_.peers.push_back({.name = name, .each_step_ms = {}});
  }

  void leave_out(const std::string& who, const std::string& why) {
    const std::string note = fmt::format("{} is left out: {}", who, why);
    if (std::find(run_.notes.begin(), run_.notes.end(), note) == run_.notes.end()) run_.notes.push_back(note);
  }

  void measure_ours(size_t i) {
    const BenchTrainCase& measured = run_.plan.cases[i];
    const nlohmann::json said = run_ours(measured, flags_.warmup);
    BenchTrainResult& result = run_.results[i];
    const double loss = said.at("loss");
    if (samples_[i].step_ms.empty()) {
      result.loss = loss;
    } else {
      result.loss_repeats &= std::bit_cast<uint64_t>(loss) == std::bit_cast<uint64_t>(result.loss);
    }
    result.unit = said.contains("tokens_per_second") ? "tokens" : "samples";
    samples_[i].step_ms.push_back(said.at("step_ms"));
    result.parts_ms.clear();
    std::vector<double> parts;
    for (const char* name :
         {"data", "forward", "backward", "other stages", "exposed communication", "optimizer", "other"}) {
      parts.push_back(said.at("parts_ms").value(name, 0.0));
      result.parts_ms.emplace_back(name, 0);
    }
    samples_[i].parts_ms.push_back(std::move(parts));
    result.peak_memory_bytes = std::max<uint64_t>(result.peak_memory_bytes, said.at("peak_memory_bytes"));
    result.state_bytes = said.at("state_bytes");
    result.reduced_bytes_per_step = said.at("reduced_bytes_per_step");
    result.weight_bytes = said.value("weight_bytes", 0ull);
    result.gradient_bytes = said.value("gradient_bytes", 0ull);
    result.optimizer_bytes = said.value("optimizer_bytes", 0ull);
    result.buffer_bytes = said.value("buffer_bytes", 0ull);
    result.activation_bytes = said.value("activation_bytes", 0ull);
    result.pass_peak_bytes = said.value("pass_peak_bytes", 0ull);
    result.sent_bytes_per_step = said.value("sent_bytes_per_step", 0ull);
    result.num_parameters = said.at("parameters");
    result.transport = said.at("transport");
    result.device_memory_bytes =
        std::max<uint64_t>(result.device_memory_bytes, said.value("device_memory_bytes", 0ull));
    if (said.contains("kernels")) take_kernels(said["kernels"], result);
  }

  static void take_kernels(const nlohmann::json& said, BenchTrainResult& result) {
    std::vector<KernelUse> kernels;
    result.kernels_ms = 0;
    for (const nlohmann::json& kernel : said) {
      kernels.push_back({kernel.at("name"), kernel.at("us")});
      result.kernels_ms += kernels.back().us / 1000;
    }
    result.kernel_classes = time_by_class(kernels);
  }

  /// False where it cannot be measured, now or later.
  bool measure_peer(BenchTrainPeer& peer) {
    try {
      const nlohmann::json said = run_torch(run_.main_case(), peer.name, flags_.steps, flags_.warmup);
      peer.each_step_ms.push_back(said.at("step_ms"));
      peer.device_memory_bytes = std::max<uint64_t>(peer.device_memory_bytes, said.at("peak_memory_bytes"));
      run_.torch_version = said.at("version");
      return true;
    } catch (const Error& error) {
      leave_out("PyTorch " + peer.name, error.what());
      return false;
    }
  }

  void measure_ddp(size_t i) {
    try {
      const nlohmann::json said = run_ddp(run_.plan.cases[i], flags_.steps, flags_.warmup);
      samples_[i].ddp_step_ms.push_back(said.at("step_ms"));
      run_.torch_version = said.at("version");
    } catch (const Error& error) {
      leave_out("PyTorch DDP", error.what());
      compared_.clear();
    }
  }

  void summarise(size_t i) {
    BenchTrainResult& result = run_.results[i];
    const BenchTrainCase& measured = run_.plan.cases[i];
    const bool tokens = result.unit == "tokens";
    const auto units = static_cast<double>(measured.samples_per_step * (tokens ? measured.config.model.seq : 1));
    result.each_step_ms = samples_[i].step_ms;
    result.step_ms = median(samples_[i].step_ms);
    result.units_per_second = 1000 * units / result.step_ms;
    for (size_t part = 0; part < result.parts_ms.size(); ++part) {
      std::vector<double> values;
      for (const std::vector<double>& parts : samples_[i].parts_ms) values.push_back(parts[part]);
      result.parts_ms[part].second = median(values);
    }
    result.each_ddp_step_ms = samples_[i].ddp_step_ms;
    if (result.each_ddp_step_ms.empty()) return;
    result.ddp_step_ms = median(result.each_ddp_step_ms);
    result.ddp_units_per_second = 1000 * units / result.ddp_step_ms;
  }

  void summarise(BenchTrainPeer& peer) {
    const BenchTrainCase& measured = run_.main_case();
    peer.step_ms = median(peer.each_step_ms);
    peer.units_per_second =
        1000 * static_cast<double>(measured.samples_per_step * measured.config.model.seq) / peer.step_ms;
  }

  const BenchTrainFlags& flags_;
  BenchTrainRun run_;
  std::vector<Samples> samples_;
  std::set<size_t> compared_;  ///< cases that PyTorch trains, too
};

}  // namespace

BenchTrainRun measure_bench_train(const BenchTrainFlags& flags, BenchTrainPlan plan) {
  return Measurement(flags, std::move(plan)).run();
}

}  // namespace trireme::cli
