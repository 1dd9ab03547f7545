// The configuration of `trireme train`, one plain struct a section; bench, verify, plan and simulate take the same one.
//
// Members bear the names of their keys: `train.global_batch` is config.train.global_batch. keys.cpp says what each key
// means and may be, and docs/config.md is made from it. resolve() fills a Config, check() says whether it can be run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "trireme/base/number_type.h"
#include "trireme/compress/method.h"
#include "trireme/config/choices.h"
#include "trireme/config/model_config.h"
#include "trireme/optimizer/rule.h"
#include "trireme/server/settings.h"

namespace trireme {

struct ModelSection : ModelConfig {
  std::string preset;  ///< empty: none
  bool operator==(const ModelSection&) const = default;
};

struct DataConfig {
  std::string path;  ///< empty: generated
  DataKind kind = DataKind::kAuto;
  std::string tokenizer;  ///< empty: bytes
  FileCache cache = FileCache::kMap;
  double held_out = 0.05;  ///< fraction
  HoldOut split = HoldOut::kRandom;
  int64_t generated_samples = 4096;  ///< generated images
  int64_t generated_size = 2 << 20;  ///< bytes of generated text
  int64_t read_ahead = 2;            ///< steps
  bool operator==(const DataConfig&) const = default;
};

struct TrainConfig {
  int64_t steps = 1000;
  int64_t global_batch = 16;
  int64_t micro_batch = 8;
  int64_t leaves = 0;              ///< 0: derived
  std::string recompute = "none";  ///< none, full, selective, or numbers of layers
  int64_t threads = 1;             ///< of a worker
  int64_t seed = 1;
  DeviceKind device = DeviceKind::kCpu;
  bool deterministic = true;  ///< on a GPU: sums keep their order
  bool graph = true;          ///< on a GPU: a step is captured once and run again, where that can be
  int64_t eval_every = 100;   ///< steps; 0: only at the end
  int64_t eval_batches = 8;
  double clip = 0;  ///< largest norm of all gradients together; 0: off
  OnNan on_nan = OnNan::kStop;
  int64_t log_every = 10;  ///< steps
  double target_loss = 0;  ///< on held-out data; 0: none
  bool operator==(const TrainConfig&) const = default;
};

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  Decay decay = Decay::kMatrices;
  double momentum = 0.9;  ///< sgd
  bool nesterov = false;
  LrSchedule schedule = LrSchedule::kConstant;
  int64_t warmup_steps = 0;
  double min_lr = 0;  ///< fraction of lr
  int64_t step_every = 0;
  double step_factor = 0.1;
  LrScaling scale_lr = LrScaling::kNone;
  bool operator==(const OptimizerConfig&) const = default;
};

/// Where a name or a file may be given: names have neither dot nor slash.
inline bool names_file(std::string_view text) { return text.find_first_of("./") != std::string_view::npos; }

struct ParallelConfig {
  int64_t dp = -1;  ///< -1: the rest of the workers
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t cp = 1;
  int64_t ep = 1;
  int64_t zero = 0;
  int64_t zero_shards = 0;  ///< replicas in a shard group; 0: all
  bool zero_keep = false;
  ZeroAccumulation zero_accumulation = ZeroAccumulation::kAuto;
  std::string offload;           ///< a folder, or "memory": the host's; empty: the device's
  bool offload_weights = false;  ///< there lie, too, those that the model computes with
  bool sequence = false;
  std::string schedule = "1f1b";  ///< a name, or a CSV file
  int64_t interleave = 1;
  int64_t update_every = 0;  ///< 0: the schedule's own
  std::string split;         ///< empty: by the layers' costs
  std::string stages;        ///< "2x1,1x2": dp x tp of each; empty: all alike
  std::string shares;        ///< "3,1": of the batch, of each replica; empty: equal
  std::string plan;          ///< a file, "auto" or "try"; empty: none
  Aggregation aggregation = Aggregation::kAverage;
  double bucket_mb = 0;  ///< MiB; 0: derived (program/zero.h)
  Overlap overlap = Overlap::kAuto;
  bool has_own_schedule() const { return names_file(schedule); }
  bool offloads_to_memory() const { return offload == "memory"; }
  bool tries_plans() const { return plan == "try"; }
  /// Instead of naming the file of a plan.
  bool asks_planner() const { return plan == "auto" || tries_plans(); }
  /// Weights change while micro-batches are under way.
  bool is_asynchronous() const;
  bool operator==(const ParallelConfig&) const = default;
};

struct PrecisionConfig {
  NumberType compute = NumberType::kFloat32;  ///< not kFp8
  MatmulType matmul = MatmulType::kCompute;
  GradientType gradients = GradientType::kFloat32;
  double loss_scale_init = 65536;
  int64_t loss_scale_growth_every = 2000;  ///< steps
  bool operator==(const PrecisionConfig&) const = default;
};

struct CompressionConfig {
  Method method = Method::kNone;
  GatherFormat gather = GatherFormat::kNone;
  double density = 0.01;  ///< fraction of elements sent
  int64_t bits = 8;
  int64_t rank = 4;
  ErrorFeedback error_feedback = ErrorFeedback::kAuto;
  int64_t warmup_steps = 0;
  double momentum = 0.9;
  double clip_deviations = 0;  ///< 0: off
  bool operator==(const CompressionConfig&) const = default;
};

struct ServerConfig {
  int64_t count = 1;
  server::Mode mode = server::Mode::kSynchronous;
  int64_t staleness = 4;
  bool rows = false;
  bool replicate = false;
  bool operator==(const ServerConfig&) const = default;
};

struct LocalConfig {
  LocalMethod method = LocalMethod::kNone;
  int64_t every = 16;  ///< steps
  int64_t after = 0;   ///< steps
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  OuterFormat format = OuterFormat::kFloat32;
  bool operator==(const LocalConfig&) const = default;
};

struct CheckpointConfig {
  int64_t every = 0;  ///< steps; 0: only at the end
  int64_t keep = 3;
  bool async = true;
  bool spread = true;           ///< over workers; else worker 0 writes all
  std::string resume = "auto";  ///< auto, never, or a path
  std::string start_from;       ///< safetensors; empty: initial weights
  bool resumes_newest() const { return resume == "auto"; }
  bool resumes_never() const { return resume == "never"; }
  bool operator==(const CheckpointConfig&) const = default;
};

struct ElasticConfig {
  int64_t max_restarts = 0;
  bool operator==(const ElasticConfig&) const = default;
};

struct ObserveConfig {
  std::string run_dir;  ///< empty: runs/NAME-N
  std::string name;     ///< empty: derived from preset or file
  bool tensorboard = true;
  bool report = true;
  int64_t trace_steps = 0;
  bool operator==(const ObserveConfig&) const = default;
};

/// Where each value came from: "default", "preset gpt2-124m", "FILE.toml:12", "command line" or "derived".
class Origins {
 public:
  /// `key` reads like "train.steps". What was never set is "default".
  const std::string& of(std::string_view key) const;
  void set(std::string_view key, std::string origin);
  /// For a sentence: "the default", "from the command line", "from FILE.toml:12", …
  std::string phrase(std::string_view key) const;
  bool is_default(std::string_view key) const;

  /// The same values are the same configuration, wherever they came from.
  bool operator==(const Origins&) const { return true; }

 private:
  std::map<std::string, std::string, std::less<>> origins_;
};

struct Config {
  ModelSection model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  PrecisionConfig precision;
  CompressionConfig compression;
  ServerConfig server;
  LocalConfig local;
  CheckpointConfig checkpoint;
  ElasticConfig elastic;
  ObserveConfig observe;
  Origins origins;
  bool operator==(const Config&) const = default;
};

}  // namespace trireme
