// The part of the weights that one server has: a state machine that knows nothing of sockets.
//
// Owner: its server, one thread. Everything is a function of the events applied, in their order: a replica that applies
// the same events has the same bits. Nothing blocks. An event that cannot be is answered by UsageError and changes
// nothing but its number, which is used up.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/server/keys.h"
#include "trireme/server/settings.h"
#include "trireme/server/shard/tree_sum.h"
#include "trireme/server/wire_state.h"

namespace trireme::server {

/// Rounds ahead of the open one: a worker that never pulls must not fill the memory.
inline constexpr uint64_t kRoundsAhead = 64;
inline constexpr uint32_t kAnyPiece = 0xffffffff;  ///< the piece of a query for squares

enum class Presence : uint16_t { kAbsent = 0, kHere, kLeft };

/// What a shard counts. Sums since it was made; a replica that takes over begins with 0.
struct ShardStats {
  uint64_t num_pushes = 0, num_dropped = 0, num_updates = 0, num_pulls = 0;
  /// Bounded mode: the most clocks by which a served pull was ahead of the slowest worker.
  uint64_t largest_lead = 0;
  /// Asynchronous and bounded modes: the most updates between a worker's pull of a piece and its push to it.
  uint64_t largest_staleness = 0;
  uint64_t sum_of_staleness = 0;
};

class Shard {
 public:
  /// Throws UsageError for settings or keys that cannot be.
  Shard(int index, int num_servers, const Settings& settings, std::vector<Key> keys, std::vector<Codec> codecs,
        uint64_t lineage);

  enum class Outcome { kApplied, kDropped, kRepeated };
  /// The memory of `data` becomes part of the sums; where the caller keeps a copy of the block, it is copied first.
  Outcome apply(const Event& event, Block data);

  enum class Readiness { kReady, kWaits };
  /// Whether a query can be answered now. Throws UsageError for one that never can.
  Readiness ready(const Query& query, const Block& rows) const;
  /// For one that is ready.
  Block answer(const Query& query, const Block& rows);
  /// "worker 2 (host a, pid 7) has not pushed clock 5": for messages while a query waits.
  std::string blocked_by(const Query& query) const;

  /// Pieces that have changed (kAnyPiece: their squares), and whether clocks or members have, since the last call.
  struct Changes {
    std::vector<uint32_t> pieces;
    bool others = false;
  };
  Changes take_changes() { return std::exchange(changes_, {}); }

  /// What Joined says to a worker.
  uint64_t last_sequence(uint32_t worker) const { return workers_[worker].last_sequence; }
  uint64_t clock_for(uint32_t worker) const;
  Presence presence(uint32_t worker) const { return workers_[worker].presence; }

  const Settings& settings() const { return settings_; }
  const KeyTable& table() const { return table_; }
  uint64_t lineage() const { return lineage_; }
  const ShardStats& stats() const { return stats_; }

  /// The whole state as frames, and back: frames in the same order. load() throws ProtocolError.
  std::vector<WireFrame> save(uint64_t epoch) const;
  static std::unique_ptr<Shard> begin_load(int index, const StateBegin& state, std::vector<Codec> codecs);
  void load(const WireFrame& frame);

 private:
  struct Round {
    Round(int num_leaves, size_t row_width) : sum(num_leaves, row_width) {}
    TreeSum sum;
    std::vector<bool> pushed;
    double lr = 0, factor = 1;
    bool summed = false;
  };
  struct Held {  ///< a piece
    Block weights, first, second;
    bool is_set[3] = {};
    uint64_t version = 0;      ///< updates so far; synchronous mode: rounds closed
    uint64_t num_updates = 0;  ///< the same without skipped rounds
    std::map<uint64_t, Round> rounds;
    std::vector<double> squares;
    uint64_t squares_clock = 0;
    std::vector<uint64_t> pulled;  ///< by worker: version at its last pull
  };
  struct WorkerState {
    Event join;
    Presence presence = Presence::kAbsent;
    uint64_t last_sequence = 0;
    uint64_t clock = 0;  ///< steps finished
  };

  const Piece& piece_of(uint32_t number) const;  ///< throws UsageError unless it is here
  Held& held(uint32_t number) { return *held_[number]; }
  const Held& held(uint32_t number) const { return *held_[number]; }
  bool uses(const WorkerState& worker, uint32_t key) const;
  /// (all leaves of a key's users) / (those that are in the round).
  double missing_factor(uint32_t piece, const Round& round) const;
  void tell_sums(uint32_t piece, Round& round);
  bool is_gone(uint64_t clock) const;
  std::string describe(uint32_t worker) const;
  uint64_t slowest_clock() const;

  void join(const Event& event);
  void leave(uint32_t worker);
  Outcome init(const Event& event, Block data);
  Outcome push(const Event& event, Block data);
  Outcome push_to_round(const Event& event, std::vector<Partial> partials);
  void commit(const Event& event);
  std::vector<Partial> partials_of(const Event& event, Block data) const;
  bool is_complete(uint32_t piece, const Round& round) const;
  /// Closes every round of a piece that can be closed.
  void advance(uint32_t piece);
  void update(uint32_t piece, const Partial& sum, const UpdateRule::Step& step);
  void changed(uint32_t piece) { changes_.pieces.push_back(piece); }

  int index_;
  Settings settings_;
  KeyTable table_;
  std::vector<Codec> codecs_;
  uint64_t lineage_;
  std::vector<uint32_t> own_;                ///< numbers of pieces
  std::vector<std::unique_ptr<Held>> held_;  ///< by number; null for pieces of other shards
  std::vector<WorkerState> workers_;
  std::map<uint64_t, StateBegin::Commit> commits_;
  Changes changes_;
  ShardStats stats_;
};

}  // namespace trireme::server
