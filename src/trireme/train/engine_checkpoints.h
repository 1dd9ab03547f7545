// Saves and loads an engine's state: workers write their shards beside training, worker 0 commits.
//
// Owner: run_training(). Threads: one; writing has its own. save() blocks while an earlier save is under way and while
// the snapshot is copied. A save that fails leaves the previous checkpoint, is told to `on_problem`, and training goes
// on.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "trireme/checkpoint/async_saver.h"
#include "trireme/comm/world.h"
#include "trireme/train/engine.h"

namespace trireme {

class CheckpointReader;

struct CheckpointDone {
  int64_t step = 0;
  std::filesystem::path path;
  uint64_t num_bytes = 0;
  double seconds = 0;
};

class EngineCheckpoints {
 public:
  struct Callbacks {
    std::function<void(const CheckpointDone&)> on_done;  ///< on worker 0, from the writing thread
    std::function<void(const std::string&)> on_problem;  ///< on worker 0, from any thread
  };
  EngineCheckpoints(World& world, Engine& engine, std::filesystem::path root, const CheckpointConfig& config,
                    Callbacks callbacks);
  /// A save under way whose other shards do not come is given up.
  ~EngineCheckpoints();

  /// Collective. False where this save could not begin.
  bool save();
  /// Collective. Returns when the save under way has ended. False where it failed on any worker.
  bool finish();
  /// Loads the newest whole checkpoint; nothing where there is none. Damaged ones are set aside and told. Collective.
  std::optional<std::filesystem::path> load_newest(bool keep_position = false);
  /// Loads this one; collective. Throws UsageError that lists the tensors that do not fit the model.
  void load(const std::filesystem::path& path, bool keep_position = false);
  /// Weights from a file in the names of Hugging Face; the optimizer starts from zero.
  void start_from(const std::filesystem::path& path, const ModelConfig& model);

 private:
  /// Whether it is so on every worker; collective.
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
  AsyncSaver saver_;
};

}  // namespace trireme
