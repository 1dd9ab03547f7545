// Writes snapshots in the background, one at a time, while training goes on.
//
// Threads: the one that owns it calls; one thread of its own writes. An error in the background never ends the process:
// the next call reports it, once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/checkpoint/save.h"
#include "trireme/checkpoint/tensor_view.h"

namespace trireme {

/// Like ShardTensor, with bytes that belong to the save.
struct SnapshotTensor {
  OwnedTensor tensor;  ///< shape and bytes of what this shard holds
  std::string group = "weights";
  int64_t first_row = 0;
  std::optional<int64_t> full_rows;
};

struct SaveRequest {
  SavePlace place;
  int shard = 0;
  int num_shards = 1;
  std::vector<SnapshotTensor> tensors;
  /// Runs in the background once the shard is on the disk and its memory is free, or with what went wrong. On worker 0
  /// it waits for the others and commits. What it throws counts as the error of this save, too.
  std::function<void(std::exception_ptr failure)> completion;
};

class AsyncSaver {
 public:
  /// Long enough for a shard of the largest model on a slow disk.
  static constexpr std::chrono::minutes kTimeout{30};

  AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  /// Finishes the save under way; an error of it that nobody has asked for is logged.
  ~AsyncSaver();

  /// Takes the request and returns, at once or, where a save is under way, at its end. Throws the error of an earlier
  /// save that has not been reported yet, or at the deadline Error that names the save in the way; the new one is then
  /// not started.
  void start(SaveRequest request, Deadline deadline = Deadline::after(kTimeout));
  bool busy() const;
  /// Waits for the end of the save under way. Throws its error, or Error that names it at the deadline.
  void wait(Deadline deadline = Deadline::after(kTimeout));

 private:
  void run();
  void throw_error();
  void wait_until_free(std::unique_lock<std::mutex>& lock, Deadline deadline);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<SaveRequest> request_;  // until it is done
  std::filesystem::path target_;        // of that request
  bool ending_ = false;
  std::exception_ptr error_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace trireme
