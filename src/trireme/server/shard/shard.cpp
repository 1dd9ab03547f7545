#include "trireme/server/shard/shard.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/optimizer/kernels.h"

namespace trireme::server {
namespace {

/// Memory that only this shard has: a pull under way may still be reading the old one.
float* writable(Block& block) {
  if (!block.unique()) block = Block::copy_of(block.bytes());
  return block.floats();
}

}  // namespace

Shard::Shard(int index, int num_servers, const Settings& settings, std::vector<Key> keys, std::vector<Codec> codecs,
             uint64_t lineage)
    : index_(index), settings_(settings), codecs_(std::move(codecs)), lineage_(lineage) {
  check(settings, num_servers);
  table_ = KeyTable(std::move(keys), settings.piece_elements, num_servers);
  if (settings.codec != 0 &&
      std::none_of(codecs_.begin(), codecs_.end(), [&](const Codec& codec) { return codec.id == settings.codec; })) {
    throw UsageError(fmt::format("server {} does not know codec {} of pushed gradients", index, settings.codec),
                     "give servers the same codecs as workers");
  }
  for (int w = 0; w < settings.num_workers; ++w) {
    // A round that closes before a worker has joined lacks its leaves, too.
    workers_.emplace_back().join.leaves = settings.leaves_of(w);
  }
  held_.resize(table_.pieces().size());
  for (uint32_t number = 0; number < held_.size(); ++number) {
    const Piece& piece = table_.pieces()[number];
    if (piece.shard != index) continue;
    own_.push_back(number);
    auto held = std::make_unique<Held>();
    const size_t bytes = piece.count * sizeof(float);
    held->weights = Block::zeros(bytes);
    if (settings.rule.has_first()) held->first = Block::zeros(bytes);
    if (settings.rule.has_second()) held->second = Block::zeros(bytes);
    held->pulled.resize(workers_.size());
    held_[number] = std::move(held);
  }
}

const Piece& Shard::piece_of(uint32_t number) const {
  if (number >= held_.size() || held_[number] == nullptr) {
    throw UsageError(fmt::format("piece {} is not one of shard {}", number, index_));
  }
  return table_.pieces()[number];
}

bool Shard::uses(const WorkerState& worker, uint32_t key) const {
  const auto& uses = worker.join.uses;
  return worker.join.uses_all || std::binary_search(uses.begin(), uses.end(), key);
}

std::string Shard::describe(uint32_t worker) const {
  const Event& join = workers_[worker].join;
  if (join.host.empty()) return fmt::format("worker {}", worker);
  return fmt::format("worker {} (host {}, pid {})", worker, join.host, join.pid);
}

uint64_t Shard::slowest_clock() const {
  uint64_t slowest = UINT64_MAX;
  for (const WorkerState& worker : workers_) {
    if (worker.presence != Presence::kLeft) slowest = std::min(slowest, worker.clock);
  }
  return slowest;
}

Shard::Outcome Shard::apply(const Event& event, Block data) {
  if (event.worker >= workers_.size()) {
    throw UsageError(fmt::format("there is no worker {} of {}", event.worker, workers_.size()));
  }
  WorkerState& worker = workers_[event.worker];
  if (event.sequence != 0) {
    if (event.sequence <= worker.last_sequence) return Outcome::kRepeated;
    if (event.sequence != worker.last_sequence + 1) {
      throw UsageError(
          fmt::format("{} sends event {} after {}", describe(event.worker), event.sequence, worker.last_sequence));
    }
    // What is refused is used up, too: the events behind it are numbered on.
    worker.last_sequence = event.sequence;
  }
  Outcome outcome = Outcome::kApplied;
  switch (event.type) {
    case Type::kJoin:
      join(event);
      break;
    case Type::kLeave:
      leave(event.worker);
      break;
    case Type::kInit:
      outcome = init(event, std::move(data));
      break;
    case Type::kPush:
      outcome = push(event, std::move(data));
      break;
    case Type::kFinish:
      worker.clock = std::max(worker.clock, event.clock + 1);
      changes_.others = true;
      break;
    case Type::kCommit:
      commit(event);
      break;
    default:
      throw UsageError("this is no event");
  }
  return outcome;
}

void Shard::join(const Event& event) {
  WorkerState& worker = workers_[event.worker];
  if (event.uses.size() > table_.keys().size()) {
    throw UsageError(fmt::format("worker {} uses {} keys of {}", event.worker, event.uses.size(), table_.keys().size()),
                     "name each key once");
  }
  for (const uint32_t key : event.uses) {
    if (key >= table_.keys().size()) throw UsageError(fmt::format("there is no key {}", key));
  }
  if (event.leaves.first < 0 || event.leaves.last > settings_.leaves() || event.leaves.first >= event.leaves.last) {
    throw UsageError(fmt::format("worker {} has leaves {} to {} of {}", event.worker, event.leaves.first,
                                 event.leaves.last, settings_.leaves()));
  }
  if (worker.join.incarnation != event.incarnation) {
    // A worker that comes later must neither hold the others back nor find its predecessor's numbers taken.
    if (worker.presence != Presence::kAbsent) {
      worker.presence = Presence::kLeft;
      const uint64_t slowest = slowest_clock();
      if (slowest != UINT64_MAX) worker.clock = std::max(worker.clock, slowest);
    }
    worker.last_sequence = 0;
  }
  worker.join = event;
  std::sort(worker.join.uses.begin(), worker.join.uses.end());
  worker.presence = Presence::kHere;
  changes_.others = true;
  // Until now others' rounds have waited for all keys from it.
  for (const uint32_t piece : own_) advance(piece);
}

void Shard::leave(uint32_t worker) {
  workers_[worker].presence = Presence::kLeft;
  changes_.others = true;
  for (const uint32_t piece : own_) advance(piece);
}

uint64_t Shard::clock_for(uint32_t worker) const {
  if (settings_.mode != Mode::kSynchronous) return workers_[worker].clock;
  uint64_t clock = UINT64_MAX;
  for (const uint32_t number : own_) {
    if (uses(workers_[worker], table_.pieces()[number].key)) clock = std::min(clock, held(number).version);
  }
  return clock == UINT64_MAX ? 0 : clock;
}

Shard::Outcome Shard::init(const Event& event, Block data) {
  const Piece& piece = piece_of(event.piece);
  Held& h = held(event.piece);
  const auto part = static_cast<size_t>(event.part);
  Block* blocks[] = {&h.weights, &h.first, &h.second};
  if (part > 2 || blocks[part]->empty()) {
    throw UsageError(
        fmt::format("the optimizer of the servers keeps no part {} of \"{}\"", part, table_.keys()[piece.key].name));
  }
  if (data.num_bytes() != piece.count * sizeof(float)) {
    throw UsageError(fmt::format("{} bytes for {} elements of \"{}\"", data.num_bytes(), piece.count,
                                 table_.keys()[piece.key].name));
  }
  // The first who says it is believed. Weights come last: with them a piece is complete.
  if (h.is_set[part] || h.is_set[0]) return Outcome::kDropped;
  *blocks[part] = std::move(data);
  h.is_set[part] = true;
  if (part == 0) {
    h.version = event.clock;
    h.num_updates = event.num_updates;
  }
  changed(event.piece);
  return Outcome::kApplied;
}

/// All who use the key have pushed, but for workers that have left.
bool Shard::is_complete(uint32_t piece, const Round& round) const {
  const uint32_t key = table_.pieces()[piece].key;
  bool has_some = false;
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    if (!uses(workers_[w], key)) continue;
    has_some |= round.pushed[w];
    if (!round.pushed[w] && workers_[w].presence != Presence::kLeft) return false;
  }
  return has_some;
}

void Shard::advance(uint32_t piece) {
  Held& h = held(piece);
  const Key& key = table_.keys()[table_.pieces()[piece].key];
  for (;;) {
    const auto found = h.rounds.find(h.version);
    if (found == h.rounds.end()) return;
    Round& round = found->second;
    if (!round.summed) {
      if (!is_complete(piece, round)) return;
      round.sum.finish();
      round.summed = true;
      if (settings_.commits) tell_sums(piece, round);
    }
    UpdateRule::Step step{round.factor, round.lr, static_cast<int64_t>(h.num_updates), key.decays};
    bool applies = true;
    if (settings_.commits) {
      const auto commit = commits_.find(h.version);
      if (commit == commits_.end()) return;
      step.factor = commit->second.factor;
      step.lr = commit->second.lr;
      applies = commit->second.applies;
    }
    step.factor *= missing_factor(piece, round);  // stays an average
    if (applies) update(piece, round.sum.finish(), step);
    ++h.version;
    h.rounds.erase(found);
    changed(piece);
  }
}

double Shard::missing_factor(uint32_t piece, const Round& round) const {
  int expected = 0, present = 0;
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    if (!uses(workers_[w], table_.pieces()[piece].key)) continue;
    const int leaves = workers_[w].join.leaves.last - workers_[w].join.leaves.first;
    expected += leaves;
    present += round.pushed[w] ? leaves : 0;
  }
  return expected == present ? 1 : static_cast<double>(expected) / present;
}

/// Of a round that is summed, as if all had been there.
void Shard::tell_sums(uint32_t number, Round& round) {
  const Piece& piece = table_.pieces()[number];
  const Key& key = table_.keys()[piece.key];
  const Partial& sum = round.sum.finish();
  const double factor = missing_factor(number, round);
  Held& h = held(number);
  h.squares.clear();
  h.squares_clock = h.version;
  if (key.row_width > 0) {
    append_row_squares(sum, key.row_width, piece.count, h.squares);
  } else {
    append_block_squares(sum.values.floats(), sum.values.num_floats(), h.squares);
  }
  for (double& value : h.squares) value *= factor * factor;
  changes_.pieces.push_back(kAnyPiece);
}

void Shard::update(uint32_t number, const Partial& sum, const UpdateRule::Step& step) {
  const Piece& piece = table_.pieces()[number];
  const size_t width = table_.keys()[piece.key].row_width;
  Held& h = held(number);
  float* weights = writable(h.weights);
  float* first = h.first.empty() ? nullptr : writable(h.first);
  float* second = h.second.empty() ? nullptr : writable(h.second);
  if (width == 0) {
    settings_.rule.apply(step, weights, sum.values.floats(), first, second, piece.count);
  } else {
    for (size_t i = 0; i < sum.rows.size(); ++i) {
      const size_t at = sum.rows[i] * width;
      settings_.rule.apply(step, weights + at, sum.values.floats() + i * width, first ? first + at : nullptr,
                           second ? second + at : nullptr, width);
    }
  }
  ++h.num_updates;
  ++stats_.num_updates;
}

void Shard::commit(const Event& event) {
  if (!settings_.commits) throw UsageError("these servers update the weights without a commit");
  commits_.emplace(event.clock, StateBegin::Commit{event.clock, event.lr, event.factor, event.applies});
  while (commits_.size() > kRoundsAhead) commits_.erase(commits_.begin());
  for (const uint32_t piece : own_) advance(piece);
}

}  // namespace trireme::server
