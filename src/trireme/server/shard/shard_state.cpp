// A shard as frames for its replica, and back.
#include <algorithm>

#include "trireme/server/shard/shard.h"

namespace trireme::server {

using control::ProtocolError;

std::vector<WireFrame> Shard::save(uint64_t epoch) const {
  StateBegin begin{settings_, table_.num_servers(), table_.keys(), epoch, lineage_, {}, {}};
  for (const WorkerState& worker : workers_) {
    begin.workers.push_back({worker.join, static_cast<uint16_t>(worker.presence), worker.last_sequence, worker.clock});
  }
  for (const auto& [clock, commit] : commits_) begin.commits.push_back(commit);
  std::vector<WireFrame> frames;
  frames.push_back({Type::kStateBegin, 0, encode(begin), {}});
  for (const uint32_t number : own_) {
    const Held& h = held(number);
    const Block* blocks[] = {&h.weights, &h.first, &h.second};
    for (uint16_t part = 0; part < 3; ++part) {
      if (blocks[part]->empty()) continue;
      const StatePart meta{number, static_cast<Part>(part), h.version, h.num_updates, h.is_set[part]};
      frames.push_back({Type::kStatePart, 0, encode(meta), *blocks[part]});
    }
    if (!h.squares.empty()) {
      const StatePart meta{number, Part::kSquares, h.squares_clock, 0, true};
      frames.push_back({Type::kStatePart, 0, encode(meta), Block::copy_of(std::as_bytes(std::span(h.squares)))});
    }
    for (const auto& [clock, round] : h.rounds) {
      StateRound meta{number, clock, round.lr, round.factor, round.summed, {}, {}, 0};
      for (uint32_t w = 0; w < workers_.size(); ++w) {
        if (round.pushed[w]) meta.pushed.push_back(w);
      }
      for (const auto& [first, partial] : round.sum.partials()) {
        meta.leaves = partial.leaves;
        meta.num_rows = static_cast<uint32_t>(partial.rows.size());
        Block data = partial.values;
        if (meta.num_rows > 0) {
          data = Block(meta.num_rows * sizeof(uint64_t) + partial.values.num_bytes());
          std::copy_n(std::as_bytes(std::span(partial.rows)).data(), meta.num_rows * sizeof(uint64_t), data.data());
          std::copy_n(partial.values.data(), partial.values.num_bytes(),
                      data.data() + meta.num_rows * sizeof(uint64_t));
        }
        frames.push_back({Type::kStateRound, 0, encode(meta), std::move(data)});
      }
    }
  }
  return frames;
}

std::unique_ptr<Shard> Shard::begin_load(int index, const StateBegin& state, std::vector<Codec> codecs) {
  auto shard =
      std::make_unique<Shard>(index, state.num_servers, state.settings, state.keys, std::move(codecs), state.lineage);
  if (state.workers.size() != shard->workers_.size()) throw ProtocolError("the state of another number of workers");
  for (size_t w = 0; w < state.workers.size(); ++w) {
    const auto& from = state.workers[w];
    if (from.presence > static_cast<uint16_t>(Presence::kLeft)) throw ProtocolError("a worker of no known state");
    shard->workers_[w] = {from.join, static_cast<Presence>(from.presence), from.last_sequence, from.clock};
  }
  for (const auto& commit : state.commits) shard->commits_.emplace(commit.clock, commit);
  return shard;
}

void Shard::load(const WireFrame& frame) {
  if (frame.type == Type::kStatePart) {
    const StatePart part = decode_state_part(frame.meta);
    const size_t count = piece_of(part.piece).count;
    Held& h = held(part.piece);
    if (part.part == Part::kSquares) {
      if (frame.data.num_bytes() != table_.num_squares(part.piece) * sizeof(double)) {
        throw ProtocolError("squares of a wrong length");
      }
      const auto* from = reinterpret_cast<const double*>(frame.data.data());
      h.squares.assign(from, from + frame.data.num_bytes() / sizeof(double));
      h.squares_clock = part.version;
      return;
    }
    Block* blocks[] = {&h.weights, &h.first, &h.second};
    const auto number = static_cast<size_t>(part.part);
    if (blocks[number]->empty() || frame.data.num_bytes() != count * sizeof(float)) {
      throw ProtocolError("a part of a wrong length");
    }
    *blocks[number] = frame.data;
    h.is_set[number] = part.is_set;
    h.version = part.version;
    h.num_updates = part.num_updates;
    return;
  }
  if (frame.type != Type::kStateRound) throw ProtocolError("this is no part of a shard");
  const StateRound state = decode_state_round(frame.meta);
  const Piece& piece = piece_of(state.piece);
  const Key& key = table_.keys()[piece.key];
  const int leaves = settings_.leaves();
  const size_t row_bytes = state.num_rows * sizeof(uint64_t);
  const size_t values = key.row_width > 0 ? state.num_rows * key.row_width : piece.count;
  if (frame.data.num_bytes() != row_bytes + values * sizeof(float) || (key.row_width == 0 && state.num_rows > 0)) {
    throw ProtocolError("a round of a wrong length");
  }
  Held& h = held(state.piece);
  auto found = h.rounds.find(state.clock);
  if (found == h.rounds.end()) found = h.rounds.emplace(state.clock, Round(leaves, key.row_width)).first;
  Round& round = found->second;
  if (state.leaves.first >= state.leaves.last || state.leaves.last > leaves || round.sum.overlaps(state.leaves)) {
    throw ProtocolError("leaves that cannot be");
  }
  round.lr = state.lr;
  round.factor = state.factor;
  round.summed = state.summed;
  round.pushed.assign(workers_.size(), false);
  for (const uint32_t worker : state.pushed) {
    if (worker >= workers_.size()) throw ProtocolError("a worker that does not exist");
    round.pushed[worker] = true;
  }
  Partial partial{state.leaves, frame.data, {}};
  if (key.row_width > 0) {
    const auto* rows = reinterpret_cast<const uint64_t*>(frame.data.data());
    partial.rows.assign(rows, rows + state.num_rows);
    const size_t rows_of_piece = piece.count / key.row_width;
    if (!std::is_sorted(partial.rows.begin(), partial.rows.end()) ||
        (!partial.rows.empty() && partial.rows.back() >= rows_of_piece)) {
      throw ProtocolError("rows that do not exist");
    }
    partial.values = Block::copy_of(frame.data.bytes().subspan(row_bytes));
  }
  round.sum.add(std::move(partial));
}

}  // namespace trireme::server
