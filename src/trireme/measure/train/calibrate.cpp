#include "trireme/measure/train/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "trireme/measure/train/trainings.h"
#include "trireme/observe/progress.h"
#include "trireme/plan/config_job.h"

namespace trireme::measure {
namespace {

/// How a training of the calibration is divided over workers. A core has one of them, with the last two kinds two.
enum class Division { kData, kTensors, kStages, kMoreThanCores, kMoreStagesThanCores };

/// A training of the calibration: a GPT-2 of that size, unless it says otherwise.
struct TrainingSize {
  int64_t layers, hidden, seq, batch, vocab;
  int64_t micro_batches = 1;  ///< of each worker; `batch` is the size of one
  Division division = Division::kData;
  const char* kind = "gpt2";
};

// Small and large ones, wide and deep, long sequences, few samples and many: what one constant decides in one of them,
// another decides in the next.
constexpr TrainingSize kOnGpu[] = {{4, 768, 1024, 8, 50257},   {4, 768, 1024, 40, 50257},  {12, 768, 1024, 4, 50257},
                                   {6, 1024, 1024, 16, 50257}, {4, 1280, 1024, 8, 50257},  {8, 1280, 1024, 16, 50257},
                                   {4, 1600, 1024, 16, 50257}, {12, 1600, 1024, 4, 50257}, {2, 768, 4096, 4, 50257}};
constexpr TrainingSize kOnCpu[] = {{2, 64, 64, 4, 256},
                                   {8, 64, 64, 8, 256},
                                   {2, 128, 128, 2, 256},
                                   {4, 256, 128, 8, 256},
                                   {2, 256, 128, 2, 256},
                                   {2, 512, 128, 8, 256},
                                   {1, 1024, 64, 4, 256},
                                   {2, 128, 512, 2, 256},
                                   {2, 128, 128, 4, 8192},
                                   {1, 256, 64, 16, 16384},
                                   // What only several micro-batches, layouts and kinds of models show.
                                   {8, 64, 64, 1, 256, 4},
                                   {2, 512, 64, 2, 256, 4},
                                   {1, 768, 32, 2, 256, 2},
                                   {2, 128, 64, 2, 8192, 4},
                                   {4, 128, 64, 4, 256, 2, Division::kTensors},
                                   {8, 64, 64, 2, 256, 2, Division::kTensors},
                                   {2, 512, 64, 4, 256, 1, Division::kTensors},
                                   {1, 768, 32, 2, 256, 4, Division::kTensors},
                                   {2, 128, 64, 2, 8192, 2, Division::kTensors},
                                   {4, 128, 64, 4, 256, 4, Division::kStages},
                                   {4, 128, 64, 2, 256, 2, Division::kMoreThanCores},
                                   {2, 256, 128, 2, 256, 1, Division::kMoreThanCores},
                                   {2, 128, 64, 2, 8192, 2, Division::kMoreThanCores},
                                   {4, 256, 64, 2, 256, 4, Division::kMoreStagesThanCores},
                                   {2, 256, 128, 2, 256, 2, Division::kData, "llama"},
                                   {6, 64, 64, 4, 256, 2, Division::kData, "llama"},
                                   {3, 768, 0, 16, 0, 2, Division::kData, "mlp"},
                                   {3, 896, 0, 16, 0, 4, Division::kTensors, "mlp"},
                                   {3, 1280, 0, 16, 0, 4, Division::kStages, "mlp"},
                                   {5, 768, 0, 8, 0, 4, Division::kMoreStagesThanCores, "mlp"},
                                   {18, 0, 0, 2, 0, 1, Division::kData, "resnet"},
                                   {18, 0, 0, 4, 0, 2, Division::kData, "resnet"}};

constexpr int64_t kHeadWidth = 64;
constexpr int64_t kImage = 28;

struct Degrees {
  int dp = 1, tp = 1, pp = 1;
};

std::string name_of(const TrainingSize& size) {
  constexpr const char* kDivisions[] = {"", ", tensors in 2 parts", ", 2 stages", ", two workers per core",
                                        ", 2 stages, two workers per core"};
  std::string name;
  if (size.kind == std::string_view("resnet")) {
    name = fmt::format("resnet-{}", size.layers);
  } else if (size.seq == 0) {
    name = fmt::format("mlp {} x {}", size.layers, size.hidden);
  } else {
    const char* kind = size.kind == std::string_view("llama") ? "llama " : "";
    name = fmt::format("{}{} x {}, {} tokens", kind, size.layers, size.hidden, size.seq);
  }
  name += fmt::format(", batch {}", size.batch);
  if (size.micro_batches > 1) name += fmt::format(" x {}", size.micro_batches);
  if (size.vocab > 256 && size.vocab != 50257) name += fmt::format(", vocabulary {}", size.vocab);
  return name + kDivisions[static_cast<size_t>(size.division)];
}

/// The degrees in which workers divide a training where each core has one.
Degrees degrees_of(Division division, int num_workers) {
  const int pairs = std::max(1, num_workers / 2);
  switch (division) {
    case Division::kTensors:
      return {.dp = pairs, .tp = 2};
    case Division::kStages:
      return {.dp = pairs, .pp = 2};
    case Division::kMoreThanCores:
      return {.dp = 2 * num_workers};
    case Division::kMoreStagesThanCores:
      return {.dp = num_workers, .pp = 2};
    default:
      return {.dp = num_workers};
  }
}

/// The training of one size, micro-batches for each replica.
TrainOptions options_of(const TrainOptions& asked, const TrainingSize& size, bool on_gpu, const Degrees& degrees) {
  TrainOptions options = asked;
  options.layouts = fmt::format("dp={},tp={},pp={}", degrees.dp, degrees.tp, degrees.pp);
  options.config.num_processes = 0;
  const int64_t micro_batches = size.micro_batches * degrees.dp;
  std::vector<std::string> words = {fmt::format("--model.kind={}", size.kind),
                                    fmt::format("--train.global_batch={}", size.batch * micro_batches),
                                    fmt::format("--train.micro_batch={}", size.batch),
                                    fmt::format("--train.leaves={}", micro_batches),
                                    "--train.clip=1",
                                    fmt::format("--train.device={}", on_gpu ? "cuda" : "cpu")};
  const auto add = [&](const char* key, int64_t value) { words.push_back(fmt::format("--model.{}={}", key, value)); };
  add(size.hidden == 0 ? "depth" : "layers", size.layers);
  if (size.hidden > 0) add("hidden", size.hidden);
  if (size.seq > 0) {
    const int64_t heads = std::max<int64_t>(degrees.tp, size.hidden / kHeadWidth);
    add("heads", heads);
    if (size.kind == std::string_view("llama")) add("kv_heads", heads);
    add("ffn", 4 * size.hidden);
    add("seq", size.seq);
    add("vocab", size.vocab);
  } else {
    add("image", kImage);
    add("channels", 1);
  }
  if (on_gpu) words.push_back("--precision.compute=bfloat16");
  options.config.model = on_gpu ? "gpt2-124m" : "gpt2-bench";
  // What the user says about the training comes later, and counts.
  options.config.words.insert(options.config.words.begin(), words.begin(), words.end());
  return options;
}

MeasuredStep measure_step(CalibrationTraining training, const Cluster& cluster) {
  const auto tokens = add_random_tokens(training.options);
  const TrainPlan plan = plan_trainings(training.options);
  const TrainCase& measured = plan.cases.at(plan.main);
  const nlohmann::json said = run_ours(measured, training.options.warmup);
  const double on_card = said.value("device_memory_bytes", 0.0);
  Job job = job_of(measured.config, trireme_on(cluster));
  job.layout.dp = training.dp;
  return {training.name, job, said.at("step_ms").get<double>() / 1000,
          on_card > 0 ? on_card : said.at("peak_memory_bytes").get<double>()};
}

}  // namespace

std::vector<CalibrationTraining> calibration_trainings(const TrainOptions& asked, bool on_gpu, int num_workers) {
  std::vector<CalibrationTraining> trainings;
  for (const TrainingSize& size : on_gpu ? std::span<const TrainingSize>(kOnGpu) : kOnCpu) {
    const Degrees degrees = degrees_of(size.division, num_workers);
    trainings.push_back({name_of(size), options_of(asked, size, on_gpu, degrees), degrees.dp});
  }
  return trainings;
}

MeasuredStep quietest(const std::vector<MeasuredStep>& repeats) {
  MeasuredStep step = repeats.at(0);
  for (const MeasuredStep& other : repeats) {
    step.seconds = std::min(step.seconds, other.seconds);
    step.memory_bytes = std::max(step.memory_bytes, other.memory_bytes);
  }
  return step;
}

Calibration calibrate(const TrainOptions& options, const std::filesystem::path& path) {
  const bool on_gpu = resolve(with_bench_defaults(options).sources()).train.device == DeviceKind::kCuda;
  ProgressOptions shown;
  shown.label = "calibrate";
  shown.total = (on_gpu ? std::size(kOnGpu) : std::size(kOnCpu)) * static_cast<size_t>(options.repeats) + 1;
  Progress progress(shown);
  progress.update(0, "single operators");
  Calibration calibration{.path = path, .probe = probe_device(path, on_gpu)};
  const Cluster& start = calibration.probe.cluster;
  uint64_t done = 1;
  // All cores at work, as in a training: they share the memory.
  for (const CalibrationTraining& training : calibration_trainings(options, on_gpu, on_gpu ? 1 : start.shared_cores)) {
    std::vector<MeasuredStep> repeats;
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      progress.update(done++, training.name);
      repeats.push_back(measure_step(training, start));
    }
    calibration.steps.push_back(quietest(repeats));
  }
  progress.update(done, "fit");
  calibration.fit = fit_device(start, calibration.steps);
  progress.finish();
  keep_device(path, calibration.probe, calibration.fit.cluster);
  return calibration;
}

}  // namespace trireme::measure
