// What a shard answers: weights, optimizer state, rows, squares, and why a query has to wait.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/server/shard/shard.h"

namespace trireme::server {

Shard::Readiness Shard::ready(const Query& query, const Block& rows) const {
  if (query.worker >= workers_.size()) throw UsageError(fmt::format("there is no worker {}", query.worker));
  if (query.type == Type::kSquares) {
    if (!settings_.commits) throw UsageError("these servers keep no squares of gradients", "switch commits on");
    if (is_gone(query.clock)) return Readiness::kReady;
    for (const uint32_t number : own_) {
      const Held& h = held(number);
      if (!h.squares.empty() && h.squares_clock == query.clock) continue;
      const bool is_used = std::any_of(workers_.begin(), workers_.end(), [&](const WorkerState& worker) {
        return uses(worker, table_.pieces()[number].key);
      });
      if (!is_used) continue;
      return Readiness::kWaits;
    }
    return Readiness::kReady;
  }
  const Piece& piece = piece_of(query.piece);
  const Key& key = table_.keys()[piece.key];
  if (query.by_rows) {
    if (key.row_width == 0) throw UsageError(fmt::format("\"{}\" has no rows", key.name), "pull it whole");
    if (rows.num_bytes() != query.num_rows * sizeof(uint64_t)) throw UsageError("the row numbers are missing");
    if (query.num_rows * key.row_width * sizeof(float) > kMaxDataBytes) {
      throw UsageError(fmt::format("{} rows of a piece of \"{}\" in one pull are more than {}", query.num_rows,
                                   key.name, format_bytes(kMaxDataBytes)),
                       "pull fewer rows at once");
    }
    std::vector<uint64_t> numbers(query.num_rows);
    if (!numbers.empty()) std::memcpy(numbers.data(), rows.data(), rows.num_bytes());
    for (const uint64_t row : numbers) {
      if (row >= piece.count / key.row_width) {
        throw UsageError(fmt::format("row {} of a piece of \"{}\" does not exist", row, key.name));
      }
    }
  } else if (!rows.empty()) {
    throw UsageError("row numbers for a pull of all");  // they would be kept while it waits
  }
  const Held& h = held(query.piece);
  if ((query.part == Part::kFirst && h.first.empty()) || (query.part == Part::kSecond && h.second.empty())) {
    throw UsageError(fmt::format("the optimizer of the servers keeps no such state of \"{}\"", key.name));
  }
  if (!h.is_set[0]) return Readiness::kWaits;
  if (settings_.mode == Mode::kSynchronous) return h.version >= query.clock ? Readiness::kReady : Readiness::kWaits;
  if (settings_.mode == Mode::kBounded) {
    const uint64_t clock = std::max(query.clock, workers_[query.worker].clock);
    const uint64_t slowest = slowest_clock(), bound = static_cast<uint64_t>(settings_.staleness_bound);
    return clock <= slowest || clock - slowest <= bound ? Readiness::kReady : Readiness::kWaits;
  }
  return Readiness::kReady;
}

/// Somebody was so late that the next round is summed already.
bool Shard::is_gone(uint64_t clock) const {
  return std::any_of(own_.begin(), own_.end(), [&](uint32_t number) {
    return !held(number).squares.empty() && held(number).squares_clock > clock;
  });
}

Block Shard::answer(const Query& query, const Block& rows) {
  ++stats_.num_pulls;
  if (query.type == Type::kSquares) {
    std::vector<double> all;
    if (is_gone(query.clock)) return {};
    for (const uint32_t number : own_) {
      const std::vector<double>& squares = held(number).squares;  // none where nobody uses the key
      all.insert(all.end(), squares.begin(), squares.end());
      all.resize(all.size() + table_.num_squares(number) - squares.size());
    }
    return Block::copy_of(std::as_bytes(std::span(all)));
  }
  Held& h = held(query.piece);
  h.pulled[query.worker] = h.version;
  if (settings_.mode == Mode::kBounded) {
    const uint64_t clock = std::max(query.clock, workers_[query.worker].clock), slowest = slowest_clock();
    if (clock > slowest) stats_.largest_lead = std::max(stats_.largest_lead, clock - slowest);
  }
  const Block& whole = query.part == Part::kFirst ? h.first : query.part == Part::kSecond ? h.second : h.weights;
  if (!query.by_rows) return whole;
  const size_t width = table_.keys()[table_.pieces()[query.piece].key].row_width;
  Block out(query.num_rows * width * sizeof(float));
  for (size_t i = 0; i < query.num_rows; ++i) {
    uint64_t row = 0;
    std::memcpy(&row, rows.data() + i * sizeof row, sizeof row);
    std::copy_n(whole.floats() + row * width, width, out.floats() + i * width);
  }
  return out;
}

std::string Shard::blocked_by(const Query& query) const {
  std::vector<std::string> who;
  const auto add = [&](uint32_t worker, const std::string& what) {
    if (who.size() < 4) who.push_back(describe(worker) + " " + what);
  };
  uint32_t number = query.piece;
  if (query.type == Type::kSquares) {  // the first piece that is not summed
    for (const uint32_t own : own_) {
      if (held(own).squares.empty() || held(own).squares_clock < query.clock) {
        number = own;
        break;
      }
    }
  }
  if (number >= held_.size() || held_[number] == nullptr) return {};
  const Held& h = held(number);
  const Piece& piece = table_.pieces()[number];
  const std::string& name = table_.keys()[piece.key].name;
  if (!h.is_set[0]) return fmt::format("nobody has given \"{}\" its first weights", name);
  const uint64_t slowest = slowest_clock();
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    const WorkerState& worker = workers_[w];
    if (worker.presence == Presence::kAbsent) {
      add(w, "has not joined");
    } else if (worker.presence == Presence::kHere && settings_.mode == Mode::kBounded && worker.clock == slowest) {
      add(w, fmt::format("is at clock {}", slowest));
    } else if (worker.presence == Presence::kHere && settings_.mode == Mode::kSynchronous && uses(worker, piece.key)) {
      const auto round = h.rounds.find(h.version);
      if (round == h.rounds.end() || !round->second.pushed[w]) {
        add(w, fmt::format("has not pushed clock {} of \"{}\"", h.version, name));
      }
    }
  }
  if (who.empty() && settings_.commits) return fmt::format("nobody has committed clock {}", h.version);
  return trireme::join(who, "; ");
}

}  // namespace trireme::server
