// How gradients come into a shard: checked, unpacked, and put into their round.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/server/shard/shard.h"

namespace trireme::server {
namespace {}  // namespace

std::vector<Partial> Shard::partials_of(const Event& event, Block data) const {
  const Piece& piece = piece_of(event.piece);
  const Key& key = table_.keys()[piece.key];
  const auto wrong = [&](const std::string& what) {
    return UsageError(fmt::format("{} pushes {} to \"{}\"", describe(event.worker), what, key.name));
  };
  if (event.partials.empty()) throw wrong("nothing");
  for (const PartialSum& partial : event.partials) {
    if (settings_.mode == Mode::kSynchronous && !is_branch(settings_.leaves(), partial.leaves)) {
      throw wrong(fmt::format("leaves {} to {} of {}, which are no branch of the tree,", partial.leaves.first,
                              partial.leaves.last, settings_.leaves()));
    }
  }
  std::vector<Partial> all;
  if (key.row_width > 0) {
    const size_t values_bytes = event.num_rows * key.row_width * sizeof(float);
    if (event.packed) throw wrong("what is not rows");
    if (data.num_bytes() != event.num_rows * sizeof(uint64_t) + event.partials.size() * values_bytes) {
      throw wrong(fmt::format("{} bytes for {} rows of {}", data.num_bytes(), event.num_rows, key.row_width));
    }
    std::vector<uint64_t> rows(event.num_rows);
    if (!rows.empty()) std::memcpy(rows.data(), data.data(), rows.size() * sizeof(uint64_t));
    for (const uint64_t row : rows) {
      if (row >= piece.count / key.row_width) throw wrong(fmt::format("row {} outside its piece", row));
    }
    const float* values = data.floats() + 2 * rows.size();
    for (const PartialSum& partial : event.partials) {
      all.push_back(sort_rows(partial.leaves, rows, values, key.row_width));
      values += rows.size() * key.row_width;
    }
    return all;
  }
  if (event.num_rows != 0) throw wrong("rows, but it has none,");
  const size_t num_bytes = data.num_bytes();
  size_t at = 0;
  for (const PartialSum& partial : event.partials) {
    if (partial.num_bytes > num_bytes - at) throw wrong("less than it says");
    const size_t bytes = piece.count * sizeof(float);
    const std::span<const std::byte> part = data.bytes().subspan(at, partial.num_bytes);
    Partial out{partial.leaves, {}, {}};
    if (event.packed) {
      const auto codec = std::find_if(codecs_.begin(), codecs_.end(),
                                      [&](const Codec& c) { return settings_.codec != 0 && c.id == settings_.codec; });
      if (codec == codecs_.end()) throw wrong("packed gradients without a codec");
      out.values = Block(bytes);
      codec->decode({key.name, piece.first, event.clock}, part, {out.values.floats(), piece.count});
    } else if (partial.num_bytes != bytes) {
      throw wrong(fmt::format("{} bytes for {} elements", partial.num_bytes, piece.count));
    } else if (event.partials.size() == 1) {
      out.values = std::move(data);
    } else {
      out.values = Block::copy_of(part);
    }
    at += partial.num_bytes;
    all.push_back(std::move(out));
  }
  if (at != num_bytes) throw wrong("more than it says");
  return all;
}

Shard::Outcome Shard::push(const Event& event, Block data) {
  const Piece& piece = piece_of(event.piece);
  Held& h = held(event.piece);
  std::vector<Partial> partials = partials_of(event, std::move(data));
  const auto& name = table_.keys()[piece.key].name;
  if (!h.is_set[0])
    throw UsageError(fmt::format("\"{}\" has no first weights yet", name), "init() it, or pull it first");
  if (!uses(workers_[event.worker], piece.key)) {
    throw UsageError(fmt::format("{} pushes to \"{}\", which it said it does not use", describe(event.worker), name));
  }
  if (settings_.mode == Mode::kSynchronous) return push_to_round(event, std::move(partials));
  const uint64_t slowest = slowest_clock();
  if (settings_.mode == Mode::kBounded && slowest != UINT64_MAX &&
      event.clock > slowest + static_cast<uint64_t>(settings_.staleness_bound)) {
    throw UsageError(fmt::format("{} pushes clock {} to \"{}\" while the slowest is at {}: the bound is {}",
                                 describe(event.worker), event.clock, name, slowest, settings_.staleness_bound),
                     "pull before each step: a pull waits until the bound allows it");
  }
  ++stats_.num_pushes;
  const uint64_t staleness = h.version - std::min(h.version, h.pulled[event.worker]);
  stats_.largest_staleness = std::max(stats_.largest_staleness, staleness);
  stats_.sum_of_staleness += staleness;
  TreeSum sum(static_cast<int>(partials.size()), table_.keys()[piece.key].row_width);
  int number = 0;
  for (Partial& partial : partials) {  // of one worker only: any order is as good
    partial.leaves = {number, number + 1};
    ++number;
    sum.add(std::move(partial));
  }
  update(event.piece, sum.finish(),
         {event.factor, event.lr, static_cast<int64_t>(h.num_updates), table_.keys()[piece.key].decays});
  ++h.version;
  changed(event.piece);
  return Outcome::kApplied;
}

Shard::Outcome Shard::push_to_round(const Event& event, std::vector<Partial> partials) {
  const Piece& piece = table_.pieces()[event.piece];
  const Key& key = table_.keys()[piece.key];
  Held& h = held(event.piece);
  if (event.clock < h.version) {
    ++stats_.num_dropped;
    return Outcome::kDropped;
  }
  if (event.clock > h.version + kRoundsAhead) {
    throw UsageError(fmt::format("{} pushes clock {} to \"{}\" while {} is open", describe(event.worker), event.clock,
                                 key.name, h.version),
                     "pull before each step: a pull waits for the round before");
  }
  auto found = h.rounds.find(event.clock);
  if (found != h.rounds.end() && (found->second.pushed[event.worker] || found->second.summed)) {
    ++stats_.num_dropped;
    return Outcome::kDropped;
  }
  for (size_t i = 0; i < partials.size(); ++i) {
    bool taken = found != h.rounds.end() && found->second.sum.overlaps(partials[i].leaves);
    for (size_t j = 0; j < i; ++j) {
      taken |= partials[j].leaves.first < partials[i].leaves.last && partials[i].leaves.first < partials[j].leaves.last;
    }
    if (taken) {
      throw UsageError(fmt::format("{} pushes leaves {} to {} of clock {} to \"{}\", which another has pushed",
                                   describe(event.worker), partials[i].leaves.first, partials[i].leaves.last,
                                   event.clock, key.name));
    }
  }
  if (found == h.rounds.end()) {
    found = h.rounds.emplace(event.clock, Round(settings_.leaves(), key.row_width)).first;
    found->second.pushed.resize(workers_.size());
    found->second.lr = event.lr;
    found->second.factor = event.factor;
  }
  ++stats_.num_pushes;
  found->second.pushed[event.worker] = true;
  for (Partial& partial : partials) found->second.sum.add(std::move(partial));
  advance(event.piece);
  return Outcome::kApplied;
}

}  // namespace trireme::server
