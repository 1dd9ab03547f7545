// Saves and loads an engine's state: workers write their shards in the background, worker 0 commits.
//
//   EngineCheckpoints checkpoints(world, engine, "runs/mine", config.checkpoint, {.on_problem = …});
//   checkpoints.load_newest();
//   while (engine.steps_done() < 1000) {
//     engine.step(…);
//     if (engine.steps_done() % 100 == 0) checkpoints.save();
//   }
//   checkpoints.finish();
//
// Owner: the program that has the engine, which must outlive it; run_training() for `trireme train`. Threads: one;
// writing has its own. save() blocks while an earlier save is running and while the snapshot is copied. If a save
// fails, the previous checkpoint remains, `on_problem` is told, and training continues.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/comm/world.h"
#include "trireme/train/engine.h"

namespace trireme {

class AsyncSaver;
class CheckpointReader;
class PendingCheckpoint;
struct SavePlace;
struct SnapshotTensor;

struct CheckpointDone {
  int64_t step = 0;
  std::filesystem::path path;
  uint64_t num_bytes = 0;
  double seconds = 0;
};

class EngineCheckpoints {
 public:
  struct Callbacks {
    std::function<void(const CheckpointDone&)> on_done;  ///< called on worker 0, from the writing thread
    std::function<void(const std::string&)> on_problem;  ///< called on any worker, from any thread
  };
  /// Saves into `root`, the same folder for all workers, which is made where it is missing. Of `config`, async, keep
  /// and spread count.
  EngineCheckpoints(World& world, Engine& engine, std::filesystem::path root, const CheckpointConfig& config,
                    Callbacks callbacks = {});
  /// Gives up a running save if shards of other workers are missing.
  ~EngineCheckpoints();

  /// Starts a save; waits for it unless checkpoint.async. Collective. Returns false if it could not begin.
  bool save();
  /// Waits for the running save. Collective. Returns false if it failed on any worker.
  bool finish();
  /// Loads the newest complete checkpoint; returns nullopt if there is none. Damaged ones are set aside and reported to
  /// `on_problem`. Collective.
  std::optional<std::filesystem::path> load_newest(bool keep_position = false);
  /// Loads this checkpoint. Collective. Throws UsageError that lists the tensors that do not fit the model.
  void load(const std::filesystem::path& path, bool keep_position = false);
  /// Loads weights from a safetensors file with Hugging Face's names; the optimizer starts from zero. Collective.
  void start_from(const std::filesystem::path& path, const ModelConfig& model);

 private:
  /// Whether `good` is true on every worker. Collective.
  bool all_agree(bool good);
  void add_residuals(std::vector<SnapshotTensor>& own) const;
  void load_residuals(const CheckpointReader& reader);
  int num_shards() const;
  int own_shard() const;
  std::vector<SnapshotTensor> snapshot() const;
  void start_writing(const SavePlace& place, std::shared_ptr<PendingCheckpoint> pending, Clock::time_point start);
  void problem(const std::string& text) const;

  World& world_;
  Engine& engine_;
  const std::filesystem::path root_;
  const CheckpointConfig config_;
  const Callbacks callbacks_;
  std::atomic<bool> ends_{false};
  std::unique_ptr<AsyncSaver> saver_;
};

}  // namespace trireme
