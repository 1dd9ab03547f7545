// How a group of parameter servers aggregates: the same on every server and worker, and checked to be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/names.h"
#include "trireme/optimizer/rule.h"
#include "trireme/program/reduction_tree.h"

namespace trireme::server {

enum class Mode : uint8_t {
  kSynchronous,   ///< a round for each clock: all gradients are summed along the tree, then the weights change once
  kAsynchronous,  ///< each gradient changes the weights when it comes
  kBounded,       ///< the same, but nobody may be more than `staleness_bound` clocks ahead of the slowest
};
constexpr auto names_of(Mode) { return std::to_array<std::string_view>({"synchronous", "asynchronous", "bounded"}); }

struct Settings {
  Mode mode = Mode::kSynchronous;
  int num_workers = 1;
  /// Leaves of the tree of sums; 0: one for each worker. See [Note: Leaves].
  int num_leaves = 0;
  int64_t staleness_bound = 0;  ///< bounded mode; 0: everybody waits for everybody
  bool replicate = false;       ///< each shard is copied to the next server before a push is acknowledged
  /// Synchronous mode: a summed round waits for Worker::commit(), so that its norm can be asked for first.
  bool commits = false;
  UpdateRule rule;
  /// Keys are cut into pieces of at most this many elements; a multiple of 4096.
  size_t piece_elements = 256 * 1024;
  uint32_t codec = 0;  ///< of pushed gradients; 0: plain float32

  int leaves() const { return num_leaves > 0 ? num_leaves : num_workers; }
  /// Leaves of a worker that names none: equal parts, in the order of workers.
  LeafRange leaves_of(int worker) const {
    const int64_t all = leaves();
    return {static_cast<int>(all * worker / num_workers), static_cast<int>(all * (worker + 1) / num_workers)};
  }
  bool operator==(const Settings&) const = default;
};

/// Throws UsageError that names the value and what is allowed.
void check(const Settings& settings, int num_servers);

/// Which gradient a codec is given: of the elements of `key` from number `first` on, at a clock.
struct PushedPart {
  std::string_view key;
  size_t first = 0;
  uint64_t clock = 0;
};

/// A pair of functions that pack a gradient for the wire. Owner: the caller. `encode` runs on the thread that pushes,
/// once for each piece of a push, so that it may keep what it has left out for the next time; `decode` runs on the
/// thread of the server, gives the same bits on every machine, and throws Error for bytes that encode never makes.
struct Codec {
  uint32_t id = 0;  ///< not 0
  std::function<std::vector<std::byte>(const PushedPart& part, std::span<const float> gradient)> encode;
  std::function<void(const PushedPart& part, std::span<const std::byte> packed, std::span<float> gradient)> decode;
};

}  // namespace trireme::server
