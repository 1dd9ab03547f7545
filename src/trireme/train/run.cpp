#include "trireme/train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/signals.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/save.h"
#include "trireme/config/resolve.h"
#include "trireme/models/built_in.h"
#include "trireme/models/model_library.h"
#include "trireme/observe/append_file.h"
#include "trireme/observe/event_log.h"
#include "trireme/observe/memory.h"
#include "trireme/observe/progress.h"
#include "trireme/observe/run_folder.h"
#include "trireme/observe/run_report.h"
#include "trireme/observe/tensorboard.h"
#include "trireme/tensor/device_trace.h"
#include "trireme/train/broadcast_result.h"
#include "trireme/train/engine_checkpoints.h"
#include "trireme/train/held_out_change.h"
#include "trireme/train/shared_folder.h"
#include "trireme/train/sums.h"

namespace trireme {
namespace {

constexpr int64_t kMostSums = 200;

/// Mean time of each part of a step.
class PartSums {
 public:
  void add(const StepReport& step) {
    ++count_;
    const double forward = step.times.forward_s;
    const double known = step.data_s + step.enqueue_s + step.times.forward_s + step.times.backward_s +
                         step.times.messages_s + step.times.communication_s + step.times.optimizer_s;
    const double parts[] = {step.data_s,
                            forward,
                            step.times.backward_s,
                            step.times.messages_s,
                            step.times.communication_s,
                            step.times.optimizer_s,
                            step.enqueue_s,
                            std::max(0.0, step.seconds - known)};
    for (size_t i = 0; i < std::size(parts); ++i) sums_[i] += parts[i];
  }
  std::vector<std::pair<std::string, double>> means_ms() const {
    std::vector<std::pair<std::string, double>> means;
    for (size_t i = 0; i < std::size(kNames); ++i) {
      means.emplace_back(kNames[i], count_ == 0 ? 0 : 1000 * sums_[i] / static_cast<double>(count_));
    }
    return means;
  }

 private:
  static constexpr const char* kNames[] = {
      "data", "forward", "backward", "other stages", "exposed communication", "optimizer", "enqueueing", "other"};
  double sums_[8] = {};
  int64_t count_ = 0;
};

/// Stages between the first and the last need no samples, so they map the files instead of reading them into memory.
DataOptions data_options(const World& world, const Config& config) {
  DataOptions options = data_options_of(config);
  const Layout layout = check(config, world.size());
  if (!needs_samples(layout, static_cast<int>(layout.pipeline_rank_of(world.rank())))) options.cache = FileCache::kMap;
  return options;
}

/// Peak memory of the fullest worker, or of this worker's GPU.
int64_t memory_of_worker(const RunResult& result) {
  const auto on_card = static_cast<int64_t>(result.device_memory_bytes);
  return on_card > 0 ? on_card : result.peak_memory_bytes;
}

class Run {
 public:
  Run(World& world, const Config& config, const RunOptions& options)
      : world_(world),
        config_(config),
        options_(options),
        leads_(world.rank() == 0),
        data_(config.model.is_own() ? open_own_data(config) : open_data(data_options(world, config))),
        trainer_(world, build_model(config), config, data_) {
    run_on_all(world.comm(), [&] {
      if (config.train.target_loss == 0 || data_.held_out) return;
      throw UsageError(fmt::format("train.target_loss = {} is a loss on held-out data, of which there is none",
                                   config.train.target_loss),
                       "set data.held_out, to 0.05 for example, or leave train.target_loss at 0");
    });
    const SampleShape shape = data_.train->shape();
    is_language_ = shape.is_language();
    units_a_step_ = static_cast<double>(config.train.global_batch * (is_language_ ? shape.seq : 1));
  }

  RunResult run() {
    open_folder();
    try {
      return run_in_folder();
    } catch (const std::exception& error) {
      log(EventKind::kStop, {{"reason", error.what()}, {"failed", true}});
      throw;
    }
  }

 private:
  RunResult run_in_folder() {
    describe();
    resume();
    result_.nothing_to_do = first_step_ >= config_.train.steps;
    introduce();
    const HeldSignals signals({SIGINT, SIGTERM});
    const auto start = Clock::now();
    sent_before_ = bytes_sent();
    train();
    finish(std::chrono::duration<double>(Clock::now() - start).count());
    if (!is_saved_) {
      throw Error(fmt::format("the state of step {} was not saved: see the warning above", result_.steps),
                  fmt::format("go on from the newest checkpoint: trireme train --resume {}", result_.run_dir.string()));
    }
    return result_;
  }

  /// Whether this worker takes part in collectives over the whole model, whose result worker 0 uses.
  bool takes_part() const { return leads_ || trainer_.groups().model() || trainer_.groups().shard_group(); }
  uint64_t bytes_sent() const {
    const Communicator* const replicas = trainer_.groups().replicas();
    return replicas ? replicas->traffic().bytes_sent : 0;
  }
  bool speaks() const { return leads_ && options_.says; }
  const char* unit() const { return is_language_ ? "tokens" : "samples"; }
  std::string speed_name() const { return std::string(unit()) + "_per_s"; }

  void log(EventKind kind, const EventValues& values) { log(kind, trainer_.steps_done(), values); }
  /// A full disk under the log must not end training, so it only warns, once. Threads: any.
  void log(EventKind kind, int64_t step, const EventValues& values) {
    if (!log_) return;
    try {
      log_->append(kind, step, values);
    } catch (const SystemError& error) {
      if (!log_failed_.exchange(true) && options_.warns) options_.warns(error.what());
    }
  }
  void warn(const std::string& text) {
    if (!leads_) return;
    if (options_.warns) options_.warns(text);
    log(EventKind::kWarning, {{"message", text}});
  }

  void open_folder() {
    if (!options_.keeps_run_folder) return;
    const std::string path = broadcast_result(world_.comm(), [&] {
      folder_.emplace(config_.observe.run_dir.empty()
                          ? RunFolder::create("runs", config_.observe.name.empty() ? "run" : config_.observe.name)
                          : RunFolder::open(config_.observe.run_dir));
      check_writable(folder_->paths().checkpoints());
      std::error_code ignored;
      const auto log_size = std::filesystem::file_size(folder_->paths().events(), ignored);
      continues_log_ = !ignored && log_size > 0;
      log_.emplace(folder_->paths().events());
      return folder_->paths().folder.string();
    });
    paths_.folder = path;
    result_.run_dir = path;
    check_sharded();
    checkpoints_.emplace(world_, trainer_, paths_.checkpoints(), config_.checkpoint,
                         EngineCheckpoints::Callbacks{[this](const CheckpointDone& done) { note_checkpoint(done); },
                                                      [this](const std::string& text) { warn(text); }});
  }

  /// Fails now rather than when the first checkpoint waits for shards that cannot arrive.
  void check_sharded() {
    const std::optional<std::string> problem = unshared_folder(world_.comm(), paths_.folder);
    if (!problem) return;
    const bool stages_write = config_.parallel.pp > 1;
    if (config_.checkpoint.spread || stages_write) {
      throw_once(world_.comm(),
                 UsageError(*problem + (stages_write ? ": stages write their weights there"
                                                     : ": all workers write their shares of checkpoints there"),
                            fmt::format("put it on a file system that all hosts share (--observe.run_dir FOLDER, the "
                                        "same path on each){}",
                                        stages_write ? ""
                                                     : ", or let worker 0 write alone: "
                                                       "--checkpoint.spread=false")));
    }
    warn(*problem +
         ". Worker 0 writes alone, so this run is saved; to resume it, copy the folder to the same path on each host");
  }

  void note_checkpoint(const CheckpointDone& done) {
    log(EventKind::kCheckpoint, done.step,
        {{"path", done.path.string()},
         {"bytes", static_cast<int64_t>(done.num_bytes)},
         {"seconds", done.seconds},
         {"note", "verified"}});
  }

  void resume() {
    if (!checkpoints_) return;
    const CheckpointConfig& from = config_.checkpoint;
    std::optional<std::filesystem::path> loaded;
    if (from.resumes_newest()) {
      loaded = checkpoints_->load_newest();
    } else if (!from.resumes_never()) {
      checkpoints_->load(from.resume);
      loaded = from.resume;
    }
    if (!loaded && !from.start_from.empty()) {
      checkpoints_->start_from(from.start_from, config_.model);
    }
    first_step_ = trainer_.steps_done();
    // Only now, so that a config that does not fit the checkpoints does not replace the one that made them.
    if (leads_) replace_file(paths_.config(), to_toml(config_));
    log(EventKind::kStart, start_values());
    if (loaded) {
      log(EventKind::kResume, {{"checkpoint", loaded->string()}});
      if (leads_) {
        const std::string change = held_out_change(CheckpointReader::open(*loaded).meta(), config_);
        if (!change.empty()) warn(change);
      }
      if (speaks()) options_.says(fmt::format("Resumed from {} (step {})", loaded->string(), trainer_.steps_done()));
    } else if (continues_log_) {
      log(EventKind::kResume, {{"message", from.resumes_never() ? "begins anew: checkpoint.resume = \"never\""
                                                                : "begins anew: there was no checkpoint to resume"}});
    }
    // A checkpoint to roll back to, even from the first steps.
    if (!loaded && config_.train.on_nan == OnNan::kRollback) checkpoints_->save();
    if (leads_ && config_.observe.tensorboard) {
      TensorBoardOptions tensorboard;
      if (loaded) tensorboard.resumed_step = trainer_.steps_done();
      board_.emplace(paths_.tensorboard(), tensorboard);
      board_->add_preformatted("config", to_toml(config_));
    }
  }

  /// For example "data, pipeline and tensor parallel".
  std::string kinds_of_parallelism() const {
    const RankGroups& groups = trainer_.groups();
    std::vector<std::string> kinds;
    const std::vector<StageDegrees>& stages = groups.layout().stages;
    const bool cut = std::any_of(stages.begin(), stages.end(), [](const StageDegrees& stage) { return stage.tp > 1; });
    if (trainer_.layout().dp > 1 || !groups.model()) kinds.push_back("data");
    if (groups.pp > 1) kinds.push_back("pipeline");
    if (groups.tp > 1 || cut) kinds.push_back("tensor");
    const std::string last = kinds.back();
    kinds.pop_back();
    return kinds.empty() ? last + " parallel" : fmt::format("{} and {} parallel", join(kinds, ", "), last);
  }

  /// Fills in the layout and size of the trained model.
  void describe() {
    std::string stages = config_.parallel.stages;
    std::replace(stages.begin(), stages.end(), ',', '+');  // commas separate keys, as in verify --a
    result_.layout = stages.empty() ? fmt::format("dp={}", trainer_.layout().dp) : "stages=" + stages;
    if (config_.parallel.pp > 1) {
      result_.layout += fmt::format(",pp={},schedule={}", config_.parallel.pp, config_.parallel.schedule);
      if (config_.parallel.interleave > 1) result_.layout += fmt::format(",interleave={}", config_.parallel.interleave);
    }
    if (config_.parallel.tp > 1) result_.layout += fmt::format(",tp={}", config_.parallel.tp);
    if (config_.parallel.sequence) result_.layout += ",sequence";
    if (config_.parallel.zero > 0) result_.layout += fmt::format(",zero={}", config_.parallel.zero);
    result_.num_parameters = trainer_.part().num_parameters();
  }

  /// What `trireme report` shows about this process.
  EventValues start_values() const {
    return {{"message", fmt::format("{}, {}", counted(world_.size(), "worker"), world_.transport())},
            {"workers", world_.size()},
            {"steps", config_.train.steps},
            {"unit", unit()},
            {"units_per_step", units_a_step_},
            {"parameters", result_.num_parameters},
            {"target_loss", config_.train.target_loss},
            {"model", config_.model.name()},
            {"data", data_.description},
            {"layout", result_.layout},
            {"precision", std::string(name_of(config_.precision.compute))},
            {"optimizer", fmt::format("{}, lr {}", name_of(config_.optimizer.kind), config_.optimizer.lr)}};
  }

  void introduce() {
    if (!speaks()) return;
    const std::string workers = world_.size() == 1
                                    ? "1 worker"
                                    : fmt::format("{} workers · {} ({}) over {}", world_.size(), kinds_of_parallelism(),
                                                  result_.layout, world_.transport());
    options_.says(fmt::format("{} of {} parameters · {}\n{} · {} {} a step in {} micro-batches\n", config_.model.name(),
                              format_short_count(static_cast<double>(result_.num_parameters)), data_.description,
                              workers, format_count(static_cast<int64_t>(units_a_step_)), unit(),
                              trainer_.layout().micro_batches()));
  }

  void train() {
    std::optional<Progress> line;
    if (speaks()) {
      ProgressOptions shown;
      shown.label = "step";
      shown.total = static_cast<uint64_t>(config_.train.steps);
      shown.first = static_cast<uint64_t>(first_step_);
      shown.unit = is_language_ ? "tok" : "samples";
      shown.units_per_one = units_a_step_;
      line.emplace(shown);
      line->update(shown.first, "the first step also finds memory");
    }
    int64_t rollbacks = 0;
    while (trainer_.steps_done() < config_.train.steps) {
      const bool enough = options_.stop_after > 0 && trainer_.steps_done() + 1 - first_step_ >= options_.stop_after;
      const bool traced = is_traced();
      trainer_.set_tracing(traced);
      StepReport step;
      const auto take_step = [&] { step = trainer_.step(HeldSignals::received() != 0 || enough); };
      if (traced) {
        write_trace(trace_device(trainer_.device(), take_step));
      } else {
        take_step();
      }
      if (!step.bad.empty() && config_.train.on_nan == OnNan::kRollback) {
        warn(step.bad);
        roll_back(++rollbacks);
        continue;
      }
      if (!step.bad.empty()) warn(step.bad + (step.skipped ? "; the step is skipped" : ""));
      result_.final_loss = step.loss;
      if (step.step - first_step_ > options_.warmup_steps) {
        step_seconds_.push_back(step.seconds);
        parts_.add(step);
      }
      note_step(step);
      if (line) {
        line->update(static_cast<uint64_t>(step.step),
                     fmt::format("loss {:.3f}  lr {:.1e}  {}", step.loss, step.learning_rate,
                                 format_bytes(process_memory().now_bytes)));
      }
      if (!options_.record.empty()) record(step);
      const bool last = step.step == config_.train.steps;
      if (config_.train.eval_every > 0 && step.step % config_.train.eval_every == 0 && !last) note_evaluation();
      const bool due = config_.checkpoint.every > 0 && step.step % config_.checkpoint.every == 0;
      if (checkpoints_ && (due || last || step.stop_wanted)) is_saved_ = checkpoints_->save();
      if (step.stop_wanted) {
        result_.stopped = !last;
        break;
      }
    }
    if (line) line->finish();
    if (checkpoints_) is_saved_ = checkpoints_->finish() && is_saved_;
  }

  /// Skips the first steps, which allocate memory and exchange message shapes.
  bool is_traced() const {
    constexpr int64_t kUntraced = 2;
    const int64_t number = trainer_.steps_done() - first_step_ - kUntraced;
    return options_.keeps_run_folder && number >= 0 && number < config_.observe.trace_steps;
  }

  /// A trace that cannot be written only causes a warning.
  void write_trace(std::vector<DeviceWork> device_work) const {
    StepTrace trace = trainer_.trace();
    trace.device = std::move(device_work);
    try {
      std::filesystem::create_directories(paths_.traces());
      replace_file(paths_.traces() / fmt::format("step-{:06}-rank-{:05}.json", trace.step, trace.rank),
                   trace_to_json(trace));
    } catch (const std::exception& error) {
      if (!options_.warns) return;
      options_.warns(
          fmt::format("rank {} cannot write its trace of step {}: {}", trace.rank, trace.step, error.what()));
    }
  }

  void roll_back(int64_t times) {
    constexpr int64_t kMost = 10;
    if (times > kMost) {
      throw_once(world_.comm(),
                 Error(fmt::format("gave up after going back {} times for numbers that are not finite", kMost),
                       "try a lower optimizer.lr or train.clip = 1, or look at the data"));
    }
    checkpoints_->finish();
    const auto path = checkpoints_->load_newest(/*keep_position=*/true);
    if (!path) {
      throw_once(world_.comm(), Error("there is no checkpoint to go back to: see the warning at the start",
                                      "train.on_nan = \"skip\" needs none"));
    }
    warn(fmt::format("went back to {} for numbers that are not finite; the batch is left out", path->string()));
    log(EventKind::kResume, {{"checkpoint", path->string()}});
  }

  void note_step(const StepReport& step) {
    const bool due = step.step % std::max<int64_t>(1, config_.train.log_every) == 0 || step.step <= 1 ||
                     step.step == config_.train.steps || step.skipped;
    if (!leads_ || !due) return;
    const double speed = units_a_step_ / step.seconds;
    log(EventKind::kStep, {{"loss", step.loss},
                           {"learning_rate", step.learning_rate},
                           {"gradient_norm", step.gradient_norm},
                           {speed_name(), speed},
                           {"data_s", step.data_s},
                           {"forward_s", step.times.forward_s},
                           {"backward_s", step.times.backward_s},
                           {"stages_s", step.times.messages_s},
                           {"exposed_comm_s", step.times.communication_s},
                           {"optimizer_s", step.times.optimizer_s},
                           {"skipped", step.skipped}});
    if (board_) {
      board_->add_scalars(step.step, {{"loss/training", step.loss},
                                      {"optimizer/learning_rate", step.learning_rate},
                                      {"optimizer/gradient_norm", step.gradient_norm},
                                      {"speed/" + speed_name(), speed}});
    }
  }

  void note_evaluation() {
    std::optional<Progress> line;  // with a large model on one core this takes longer than many steps
    if (speaks()) {
      ProgressOptions shown;
      shown.label = "measuring on held-out samples:";
      shown.vanishes = true;
      line.emplace(shown);
    }
    result_.held_out = trainer_.evaluate(config_.train.eval_batches, [&](int64_t done, int64_t samples) {
      if (line) line->update(static_cast<uint64_t>(done), fmt::format("of {}", format_count(samples)));
    });
    line.reset();
    if (result_.held_out.num_samples == 0 || !leads_) return;
    const Evaluation& eval = result_.held_out;
    EventValues values = {{"loss", eval.loss}, {"perplexity", eval.perplexity}};
    if (!std::isnan(eval.accuracy)) values.emplace_back("accuracy", eval.accuracy);
    log(EventKind::kEval, values);
    if (!board_) return;
    board_->add_scalars(trainer_.steps_done(), {{"loss/held_out", eval.loss}});
    if (!std::isnan(eval.accuracy)) {
      board_->add_scalars(trainer_.steps_done(), {{"held_out/accuracy", eval.accuracy}});
    }
  }

  /// Writes loss, averaged gradients and weights of a step, for `trireme verify`. All ranks have the same; worker 0
  /// writes.
  void record(const StepReport& step) {
    if (!takes_part()) return;  // ranks that hold parts gather them
    std::vector<torch::Tensor> kept{torch::tensor({step.loss}, torch::kFloat64)};
    std::vector<TensorView> views;
    const auto add = [&](const std::string& name, torch::Tensor tensor) {
      kept.push_back(tensor.cpu().contiguous());
      const Data data = data_of(kept.back());
      views.push_back({{name, data.type, tensor.sizes().vec()}, {data.bytes, data.num_bytes()}});
    };
    add("loss", kept[0]);
    const auto& weights = trainer_.part().weights();
    for (size_t i = weights.size(); i-- > 0;) add("gradient." + weights[i].name, trainer_.gradient(i));
    for (size_t i = 0; i < weights.size(); ++i) add("weight." + weights[i].name, trainer_.weight(i));
    if (!leads_) return;
    write_safetensors(options_.record / fmt::format("step-{:06}.safetensors", step.step), views);
  }

  void profile_steps() {
    if (options_.profiled_steps == 0) return;
    result_.kernels = profile(trainer_.device(), [this] {
      for (int64_t i = 0; i < options_.profiled_steps; ++i) trainer_.step();
    });
    for (KernelTime& kernel : result_.kernels) {
      kernel.us /= static_cast<double>(options_.profiled_steps);
      kernel.count /= options_.profiled_steps;
    }
  }

  void finish(double seconds) {
    result_.device_memory_bytes = device_memory(trainer_.device()).peak_bytes;
    const auto own_steps = static_cast<uint64_t>(std::max<int64_t>(1, trainer_.steps_done() - first_step_));
    result_.reduced_bytes_per_step = trainer_.bytes_reduced() / own_steps;
    result_.sent_bytes_per_step = (bytes_sent() - sent_before_) / own_steps;
    result_.gathered_bytes_per_step = trainer_.bytes_gathered() / own_steps;
    note_evaluation();
    result_.steps = trainer_.steps_done();
    result_.seconds = seconds;
    result_.unit = unit();
    result_.has_target = config_.train.target_loss > 0 && !result_.stopped;
    result_.reached_target = !result_.has_target || result_.held_out.loss <= config_.train.target_loss;
    result_.parts_ms = parts_.means_ms();
    gather_memory();
    result_.state = trainer_.state_parts();
    result_.steps_skipped = trainer_.steps_skipped();
    if (!step_seconds_.empty()) {
      const auto middle = step_seconds_.begin() + static_cast<std::ptrdiff_t>(step_seconds_.size() / 2);
      std::nth_element(step_seconds_.begin(), middle, step_seconds_.end());
      result_.step_ms = *middle * 1000;
      result_.units_per_second = units_a_step_ / *middle;
    }
    if (takes_part() && data_.is_generated_text && options_.keeps_run_folder && !result_.stopped) {
      const SumsScore score = ask_sums([this](const torch::Tensor& text) { return trainer_.predict(text).cpu(); },
                                       data_.generated, kMostSums);
      result_.sums_asked = score.asked;
      result_.sums_right = score.right;
    }
    profile_steps();  // which trains on, so what the run reports has been read by now
    if (options_.measures_memory) result_.passes = trainer_.measure_passes();
    if (leads_) write_report_page();
  }

  void gather_memory() {
    const std::vector<int64_t> own = {static_cast<int64_t>(process_memory().peak_bytes)};
    result_.worker_memory_bytes.resize(static_cast<size_t>(world_.size()));
    world_.comm().all_gather(own, result_.worker_memory_bytes);
    result_.peak_memory_bytes = *std::ranges::max_element(result_.worker_memory_bytes);
  }

  void write_report_page() {
    if (!log_) return;
    EventValues values = {
        {"workers", world_.size()}, {"step_ms", result_.step_ms}, {"memory_bytes", memory_of_worker(result_)}};
    if (result_.stopped) {
      values.insert(values.begin(), {"reason", fmt::format("signal {}", HeldSignals::received())});
    } else {
      values.insert(values.begin(), {"message", "all steps are done"});
    }
    if (options_.predicted.ms > 0 && result_.step_ms > 0)
      values.emplace_back("predicted", predicted_text(options_.predicted, result_));
    log(result_.stopped ? EventKind::kStop : EventKind::kEnd, values);
    if (config_.observe.report) write_report(paths_.report(), story_of_run(paths_).report);
  }

  World& world_;
  const Config config_;
  const RunOptions options_;
  const bool leads_;
  const OpenedData data_;
  Trainer trainer_;
  bool is_language_ = true;
  bool is_saved_ = true;  ///< whether the last save succeeded
  double units_a_step_ = 0;
  std::optional<RunFolder> folder_;
  RunPaths paths_;
  std::optional<EventLog> log_;
  bool continues_log_ = false;  ///< the folder already had a log
  std::atomic<bool> log_failed_{false};
  std::optional<TensorBoardWriter> board_;
  std::optional<EngineCheckpoints> checkpoints_;  // ends before what its callbacks use
  int64_t first_step_ = 0;
  uint64_t sent_before_ = 0;
  std::vector<double> step_seconds_;
  PartSums parts_;
  RunResult result_;
};

}  // namespace

std::string predicted_text(const PredictedStep& predicted, const RunResult& measured) {
  const auto off = [](double said, double is) { return 100 * (said / is - 1); };
  std::string text = fmt::format("{:.1f} ms a step ({:+.1f} %)", predicted.ms, off(predicted.ms, measured.step_ms));
  if (const auto held = static_cast<double>(memory_of_worker(measured)); held > 0 && predicted.memory_bytes > 0) {
    text += fmt::format(", {} a worker ({:+.1f} %)", format_bytes(static_cast<uint64_t>(predicted.memory_bytes)),
                        off(predicted.memory_bytes, held));
  }
  return text;
}

RunResult run_training(World& world, const Config& config, const RunOptions& options) {
  return Run(world, config, options).run();
}

}  // namespace trireme
