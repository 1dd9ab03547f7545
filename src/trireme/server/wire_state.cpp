#include "trireme/server/wire_state.h"

#include "trireme/server/wire_fields.h"

namespace trireme::server {

using namespace fields;

std::vector<std::byte> encode(const Standing& standing) {
  Writer w;
  w.u64(standing.instance).u16(static_cast<uint16_t>(standing.role)).u64(standing.epoch);
  return w.take();
}

Standing decode_standing(std::span<const std::byte> meta) {
  return whole(meta, [](PayloadReader& reader) {
    Standing standing;
    standing.instance = reader.u64();
    standing.role = enumerator(reader, Role::kPrimary);
    standing.epoch = reader.u64();
    return standing;
  });
}

std::vector<std::byte> encode(const StateBegin& state) {
  Writer w;
  write(w, state.settings, state.num_servers, state.keys);
  w.u64(state.epoch).u64(state.lineage).u32(static_cast<uint32_t>(state.workers.size()));
  for (const auto& worker : state.workers) {
    Event join = worker.join;
    join.type = Type::kJoin;  // also of one who has not joined yet
    write(w, join);
    w.u16(worker.presence).u64(worker.last_sequence).u64(worker.clock);
  }
  w.u32(static_cast<uint32_t>(state.commits.size()));
  for (const auto& commit : state.commits) {
    w.u64(commit.clock).f64(commit.lr).f64(commit.factor).flag(commit.applies);
  }
  return w.take();
}

StateBegin decode_state_begin(std::span<const std::byte> meta) {
  return whole(meta, [](PayloadReader& reader) {
    StateBegin state;
    read(reader, state.settings, state.num_servers, state.keys);
    state.epoch = reader.u64();
    state.lineage = reader.u64();
    state.workers.resize(count_of(reader, 62));
    for (auto& worker : state.workers) {
      worker.join = event_of(Type::kJoin, reader);
      worker.presence = reader.u16();
      worker.last_sequence = reader.u64();
      worker.clock = reader.u64();
    }
    state.commits.resize(count_of(reader, 26));
    for (auto& commit : state.commits) {
      commit.clock = reader.u64();
      commit.lr = f64(reader);
      commit.factor = f64(reader);
      commit.applies = flag(reader);
    }
    return state;
  });
}

std::vector<std::byte> encode(const StatePart& part) {
  Writer w;
  w.u32(part.piece).u16(static_cast<uint16_t>(part.part)).u64(part.version).u64(part.num_updates).flag(part.is_set);
  return w.take();
}

StatePart decode_state_part(std::span<const std::byte> meta) {
  return whole(meta, [](PayloadReader& reader) {
    StatePart part;
    part.piece = reader.u32();
    part.part = enumerator(reader, Part::kSquares);
    part.version = reader.u64();
    part.num_updates = reader.u64();
    part.is_set = flag(reader);
    return part;
  });
}

std::vector<std::byte> encode(const StateRound& round) {
  Writer w;
  w.u32(round.piece).u64(round.clock).f64(round.lr).f64(round.factor).flag(round.summed);
  write(w, round.pushed);
  write(w, round.leaves);
  return w.u32(round.num_rows).take();
}

StateRound decode_state_round(std::span<const std::byte> meta) {
  return whole(meta, [](PayloadReader& reader) {
    StateRound round;
    round.piece = reader.u32();
    round.clock = reader.u64();
    round.lr = f64(reader);
    round.factor = f64(reader);
    round.summed = flag(reader);
    round.pushed = list_of_u32(reader);
    round.leaves = leaf_range(reader);
    round.num_rows = reader.u32();
    return round;
  });
}

}  // namespace trireme::server
