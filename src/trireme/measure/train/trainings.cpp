#include "trireme/measure/train/trainings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <set>

#include "trireme/base/error.h"
#include "trireme/measure/programs.h"
#include "trireme/measure/statistics.h"
#include "trireme/observe/progress.h"

namespace trireme::measure {
namespace {

constexpr std::chrono::seconds kGpuAnswer{5};
constexpr const char* kDdpScript = "peer_ddp.py";
constexpr int kProfiledSteps = 2;

/// `peer_ddp.py` with the shape, batch and workers of the case.
nlohmann::json run_ddp(const TrainCase& measured, int64_t steps, int64_t warmup) {
  const ModelConfig& model = measured.config.model;
  LocalLaunch launch;
  launch.num_processes = measured.num_workers;
  launch.argv = {peer_python(), peer_script(kDdpScript), "--mode", measured.num_workers > 1 ? "ddp" : "single"};
  const std::pair<const char*, int64_t> words[] = {{"--layers", model.layers}, {"--hidden", model.hidden},
                                                   {"--heads", model.heads},   {"--seq", model.seq},
                                                   {"--vocab", model.vocab},   {"--batch", measured.samples_per_step},
                                                   {"--steps", steps},         {"--warmup", warmup}};
  for (const auto& [name, value] : words) launch.argv.insert(launch.argv.end(), {name, std::to_string(value)});
  launch.environment = {{"OMP_NUM_THREADS", "1"}, {"GLOO_SOCKET_IFNAME", "lo"}};
  return run_for_json(launch, kDdpScript);
}

/// Why PyTorch cannot train this next to us, and what to do about it; empty when, as far as can be told, it can.
std::string ddp_problem(const Config& config) {
  const ModelConfig& model = config.model;
  if (model.kind != ModelKind::kGpt2 || !model.tied || model.ffn != 4 * model.hidden || model.dropout != 0) {
    return "its yardstick is a GPT-2 with tied embeddings, model.ffn = 4 model.hidden and no dropout";
  }
  if (config.precision.compute != NumberType::kFloat32) return "its yardstick computes in float32";
  if (config.optimizer.kind != OptimizerKind::kAdamW || config.train.clip != 0) {
    return "its yardstick is AdamW without clipping; set optimizer.kind=adamw and train.clip=0";
  }
  if (config.train.threads != 1) return "its yardstick has one thread per worker; set train.threads=1";
  return peer_problem(kDdpScript);
}

class Measurement {
 public:
  Measurement(const TrainOptions& options, TrainPlan plan) : options_(options) {
    run_.plan = std::move(plan);
    said_.resize(run_.plan.cases.size());
    ddp_step_ms_.resize(run_.plan.cases.size());
    run_.peak_tflops = options.peak_tflops;
    if (run_.on_gpu()) run_.gpus = ask_for_gpus(Deadline::after(kGpuAnswer));
    if (options.compare_ddp) choose_compared();
  }

  const TrainPlan& plan() const { return run_.plan; }
  size_t num_peers() const { return compared_.size(); }

  TrainRun run() {
    ProgressOptions shown;
    shown.label = "bench train";
    shown.total = (run_.plan.cases.size() + compared_.size()) * static_cast<size_t>(options_.repeats);
    Progress progress(shown);
    uint64_t done = 0;
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      for (size_t i = 0; i < run_.plan.cases.size(); ++i) {
        const TrainCase& measured = run_.plan.cases[i];
        progress.update(done, measured.name);
        said_[i].push_back(run_ours(measured, options_.warmup));
        progress.update(++done, measured.name);
        if (!compared_.contains(i)) continue;
        progress.update(done, "PyTorch, " + measured.name);
        measure_ddp(i);
        ++done;
      }
    }
    progress.finish();
    for (size_t i = 0; i < said_.size(); ++i) {
      run_.results.push_back(summarise(run_.plan.cases[i], std::move(said_[i]), std::move(ddp_step_ms_[i])));
    }
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

  void leave_out(const std::string& who, const std::string& why) {
    const std::string note = fmt::format("{} is left out: {}", who, why);
    if (std::find(run_.notes.begin(), run_.notes.end(), note) == run_.notes.end()) run_.notes.push_back(note);
  }

  void measure_ddp(size_t i) {
    try {
      const nlohmann::json said = run_ddp(run_.plan.cases[i], options_.steps, options_.warmup);
      ddp_step_ms_[i].push_back(said.at("step_ms"));
      run_.torch_version = said.at("version");
    } catch (const Error& error) {
      leave_out("PyTorch DDP", error.what());
      compared_.clear();
    }
  }

  const TrainOptions& options_;
  TrainRun run_;
  std::vector<std::vector<nlohmann::json>> said_;  ///< by case and repeat
  std::vector<std::vector<double>> ddp_step_ms_;
  std::set<size_t> compared_;  ///< cases that PyTorch trains, too
};

}  // namespace

nlohmann::json run_ours(const TrainCase& measured, int64_t warmup) {
  std::vector<std::string> flags = {"--bench", "--warmup", std::to_string(warmup)};
  if (measured.config.train.device == DeviceKind::kCuda)
    flags.insert(flags.end(), {"--profile", std::to_string(kProfiledSteps)});
  const TrainingHandoff handoff({measured.config});
  return run_for_json(handoff.launch(measured.num_workers, flags), "layout " + measured.name);
}

TrainResult summarise(const TrainCase& measured, std::vector<nlohmann::json> said, std::vector<double> ddp_step_ms) {
  TrainResult result;
  result.loss = said.at(0).at("loss");
  for (const nlohmann::json& each : said) {
    result.each_step_ms.push_back(each.at("step_ms"));
    result.loss_repeats &=
        std::bit_cast<uint64_t>(each.at("loss").get<double>()) == std::bit_cast<uint64_t>(result.loss);
    result.peak_memory_bytes = std::max<uint64_t>(result.peak_memory_bytes, each.at("peak_memory_bytes"));
    result.device_memory_bytes =
        std::max<uint64_t>(result.device_memory_bytes, each.value("device_memory_bytes", 0ull));
  }
  for (const char* name :
       {"data", "forward", "backward", "other stages", "exposed communication", "optimizer", "other"}) {
    std::vector<double> values;
    for (const nlohmann::json& each : said) values.push_back(each.at("parts_ms").value(name, 0.0));
    result.parts_ms.emplace_back(name, median(std::move(values)));
  }
  result.said = std::move(said.back());
  for (const nlohmann::json& kernel : result.said.value("kernels", nlohmann::json::array())) {
    result.kernels_us.emplace_back(kernel.at("name"), kernel.at("us"));
  }
  const bool tokens = result.said.contains("tokens_per_second");
  result.unit = tokens ? "tokens" : "samples";
  const auto units = static_cast<double>(measured.samples_per_step * (tokens ? measured.config.model.seq : 1));
  result.step_ms = median(result.each_step_ms);
  result.units_per_second = 1000 * units / result.step_ms;
  result.each_ddp_step_ms = std::move(ddp_step_ms);
  if (result.each_ddp_step_ms.empty()) return result;
  result.ddp_step_ms = median(result.each_ddp_step_ms);
  result.ddp_units_per_second = 1000 * units / result.ddp_step_ms;
  return result;
}

TrainRun measure_trainings(const TrainOptions& options, TrainPlan plan,
                           const std::function<void(const TrainPlan&, size_t)>& announce) {
  Measurement measurement(options, std::move(plan));
  if (announce) announce(measurement.plan(), measurement.num_peers());
  return measurement.run();
}

}  // namespace trireme::measure
