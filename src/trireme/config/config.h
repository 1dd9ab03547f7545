// The configuration of `trireme train`, one plain struct per section; bench, verify, plan and simulate take the same
// one.
//
// Members have the names of their keys: `train.global_batch` is config.train.global_batch. keys.cpp lists meaning and
// allowed values of each key, and docs/config.md is generated from it. resolve() fills in a Config; check() decides
// whether it can run.
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
  std::string preset;  ///< name of a preset; empty: none
  bool operator==(const ModelSection&) const = default;
};

struct DataConfig {
  std::string path;  ///< empty: generated data
  DataKind kind = DataKind::kAuto;
  std::string tokenizer;  ///< file or folder; empty: bytes
  FileCache cache = FileCache::kMap;
  double held_out = 0.05;  ///< fraction of the samples
  HoldOut split = HoldOut::kRandom;
  int64_t generated_samples = 4096;  ///< number of generated images
  int64_t generated_size = 2 << 20;  ///< bytes of generated text
  int64_t read_ahead = 2;            ///< steps to prefetch
  bool operator==(const DataConfig&) const = default;
};

struct TrainConfig {
  int64_t steps = 1000;
  int64_t global_batch = 16;       ///< samples per step, over all workers
  int64_t micro_batch = 8;         ///< samples
  int64_t leaves = 0;              ///< 0: derived_leaves()
  std::string recompute = "none";  ///< none, full, selective, or layer numbers such as 0-3,7
  int64_t threads = 1;             ///< per worker
  int64_t seed = 1;
  DeviceKind device = DeviceKind::kCpu;
  bool deterministic = true;  ///< GPU: fixed order of sums, so bits repeat
  bool graph = true;          ///< GPU: capture a step once and replay it, where possible
  int64_t eval_every = 100;   ///< steps; 0: only at the end
  int64_t eval_batches = 8;
  double clip = 0;  ///< largest norm of all gradients; 0: off
  OnNan on_nan = OnNan::kStop;
  int64_t log_every = 10;  ///< steps
  double target_loss = 0;  ///< held-out loss to reach; 0: none
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
  double momentum = 0.9;  ///< only sgd
  bool nesterov = false;
  LrSchedule schedule = LrSchedule::kConstant;
  int64_t warmup_steps = 0;
  double min_lr = 0;         ///< final rate, as a fraction of lr
  int64_t step_every = 0;    ///< steps; schedule step only
  double step_factor = 0.1;  ///< schedule step only
  LrScaling scale_lr = LrScaling::kNone;
  bool operator==(const OptimizerConfig&) const = default;
};

/// Whether a value that may be a name or a path is a path: it has a dot or a slash.
inline bool names_file(std::string_view text) { return text.find_first_of("./") != std::string_view::npos; }

struct ParallelConfig {
  int64_t dp = -1;  ///< replicas; -1: as many as the workers allow
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t cp = 1;
  int64_t ep = 1;
  int64_t zero = 0;
  int64_t zero_shards = 0;  ///< replicas per shard group; 0: all
  bool zero_keep = false;
  ZeroAccumulation zero_accumulation = ZeroAccumulation::kAuto;
  std::string offload;  ///< master weights and optimizer state: a folder, "memory" (the host's); empty: on device
  bool offload_weights = false;  ///< ZeRO-3: also offload the weights that the model computes with
  bool sequence = false;
  std::string schedule = "1f1b";  ///< name, or path of a CSV file
  int64_t interleave = 1;
  int64_t update_every = 0;  ///< micro-batches per replica in an update; 0: the schedule's default
  std::string split;         ///< layers of each stage; empty: balanced by cost
  std::string stages;        ///< dp x tp of each stage: "2x1,1x2"; empty: all alike
  std::string shares;        ///< batch part of each replica: "3,1"; empty: equal
  std::string plan;          ///< path, "auto" or "try"; empty: none
  Aggregation aggregation = Aggregation::kAverage;
  double bucket_mb = 0;  ///< MiB; 0: derived (program/zero.h)
  Overlap overlap = Overlap::kAuto;
  bool has_own_schedule() const { return names_file(schedule); }
  bool offloads_to_memory() const { return offload == "memory"; }
  bool tries_plans() const { return plan == "try"; }
  /// Whether the planner chooses the layout, rather than a plan file or the keys.
  bool asks_planner() const { return plan == "auto" || tries_plans(); }
  /// Whether weights are updated while micro-batches are in flight.
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
  int64_t bits = 8;       ///< qsgd: 1, 2, 4 or 8
  int64_t rank = 4;       ///< powersgd
  ErrorFeedback error_feedback = ErrorFeedback::kAuto;
  int64_t warmup_steps = 0;
  double momentum = 0.9;       ///< dgc
  double clip_deviations = 0;  ///< terngrad: standard deviations; 0: off
  bool operator==(const CompressionConfig&) const = default;
};

struct ServerConfig {
  int64_t count = 1;
  server::Mode mode = server::Mode::kSynchronous;
  int64_t staleness = 4;  ///< steps
  bool rows = false;
  bool replicate = false;
  bool operator==(const ServerConfig&) const = default;
};

struct LocalConfig {
  LocalMethod method = LocalMethod::kNone;
  int64_t every = 16;  ///< steps between averagings
  int64_t after = 0;   ///< steps that average every time, at the start
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
  OuterFormat format = OuterFormat::kFloat32;
  bool operator==(const LocalConfig&) const = default;
};

struct CheckpointConfig {
  int64_t every = 0;  ///< steps; 0: only at the end
  int64_t keep = 3;
  bool async = true;
  bool spread = true;           ///< all workers write; false: worker 0 writes all
  std::string resume = "auto";  ///< "auto", "never", or a path
  std::string start_from;       ///< safetensors file or folder; empty: initial weights
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
  int64_t trace_steps = 0;  ///< steps; 0: off
  bool operator==(const ObserveConfig&) const = default;
};

/// Where each value came from: "default", "preset gpt2-124m", "FILE.toml:12", "command line" or "derived".
class Origins {
 public:
  /// `key` reads like "train.steps". "default" for a key that was never set.
  const std::string& of(std::string_view key) const;
  void set(std::string_view key, std::string origin);
  /// The origin as part of a sentence: "the default", "from the command line", "from FILE.toml:12", …
  std::string phrase(std::string_view key) const;
  bool is_default(std::string_view key) const;

  /// Always equal: configurations with the same values are equal, whatever the origins.
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
