#include "trireme/server/wire_state.h"

#include "trireme/server/wire_fields.h"

namespace trireme::server {

using namespace fields;

template <typename Io>
void each_field(Io& io, Of<Io, Standing>& standing) {
  io(standing.instance);
  io.one_of(standing.role, Role::kPrimary);
  io(standing.epoch);
}

template <typename Io>
void each_field(Io& io, Of<Io, StateBegin>& state) {
  each_field(io, state.settings, state.num_servers, state.keys);
  io(state.epoch, state.lineage);
  io.list(state.workers, 62, [&](auto& worker) {
    each_field(io, worker.join, Type::kJoin);  // also of one who has not joined yet
    io(worker.presence, worker.last_sequence, worker.clock);
  });
  io.list(state.commits, 26, [&](auto& commit) { io(commit.clock, commit.lr, commit.factor, commit.applies); });
}

template <typename Io>
void each_field(Io& io, Of<Io, StatePart>& part) {
  io(part.piece);
  io.one_of(part.part, Part::kSquares);
  io(part.version, part.num_updates, part.is_set);
}

template <typename Io>
void each_field(Io& io, Of<Io, StateRound>& round) {
  io(round.piece, round.clock, round.lr, round.factor, round.summed);
  io.list(round.pushed, 4, [&](auto& worker) { io(worker); });
  each_field(io, round.leaves);
  io(round.num_rows);
}

std::vector<std::byte> encode(const Standing& standing) { return written(standing); }
Standing decode_standing(std::span<const std::byte> meta) { return read_whole<Standing>(meta); }

std::vector<std::byte> encode(const StateBegin& state) { return written(state); }
StateBegin decode_state_begin(std::span<const std::byte> meta) { return read_whole<StateBegin>(meta); }

std::vector<std::byte> encode(const StatePart& part) { return written(part); }
StatePart decode_state_part(std::span<const std::byte> meta) { return read_whole<StatePart>(meta); }

std::vector<std::byte> encode(const StateRound& round) { return written(round); }
StateRound decode_state_round(std::span<const std::byte> meta) { return read_whole<StateRound>(meta); }

}  // namespace trireme::server
