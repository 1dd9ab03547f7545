// The bytes between the two servers of a shard: who is who, and a shard on its way.
#pragma once

#include "trireme/server/wire.h"

namespace trireme::server {

enum class Role : uint16_t { kEmpty = 0, kBackup, kPrimary };
/// What one server of a shard tells the other about itself.
struct Standing {
  uint64_t instance = 0;  ///< of the process
  Role role = Role::kEmpty;
  uint64_t epoch = 0;  ///< of the role: the higher one is right
};
std::vector<std::byte> encode(const Standing& standing);
Standing decode_standing(std::span<const std::byte> meta);

/// A shard on its way to a replica: first this, then its parts and open rounds.
struct StateBegin {
  Settings settings;
  int num_servers = 1;
  std::vector<Key> keys;
  uint64_t epoch = 0, lineage = 0;
  struct WorkerState {
    Event join;
    uint16_t presence = 0;
    uint64_t last_sequence = 0, clock = 0;
  };
  std::vector<WorkerState> workers;
  struct Commit {
    uint64_t clock = 0;
    double lr = 0, factor = 1;
    bool applies = true;
  };
  std::vector<Commit> commits;
};
std::vector<std::byte> encode(const StateBegin& state);
StateBegin decode_state_begin(std::span<const std::byte> meta);

struct StatePart {
  uint32_t piece = 0;
  Part part = Part::kWeights;
  uint64_t version = 0;  ///< of squares: their clock
  uint64_t num_updates = 0;
  bool is_set = false;
};
std::vector<std::byte> encode(const StatePart& part);
StatePart decode_state_part(std::span<const std::byte> meta);

struct StateRound {
  uint32_t piece = 0;
  uint64_t clock = 0;
  double lr = 0, factor = 1;
  bool summed = false;
  std::vector<uint32_t> pushed;  ///< workers
  LeafRange leaves;
  uint32_t num_rows = 0;
};
std::vector<std::byte> encode(const StateRound& round);
StateRound decode_state_round(std::span<const std::byte> meta);

}  // namespace trireme::server
