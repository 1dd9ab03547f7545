#include "trireme/comm/host/board_collectives.h"

#include <algorithm>
#include <cstring>

#include "trireme/comm/algorithms/messenger.h"

namespace trireme {
namespace {

// How a post's place is to be understood.
constexpr uint32_t kDirect = 1;      // the operand itself
constexpr uint32_t kSmallStage = 2;  // the number of a stage on the board

void copy(Data out, ConstData in, Stores stores = Stores::kCached) {
  if (in.count > 0 && out.bytes != in.bytes) copy_bytes(out.bytes, in.bytes, in.num_bytes(), stores);
}

// Pointers to the operands of all members, without allocating for the usual numbers of them.
template <typename Pointer>
class Pointers {
 public:
  explicit Pointers(int n) : size_(static_cast<size_t>(n)) {
    if (n > kInline) many_.resize(size_);
  }
  Pointer& operator[](int i) { return (many_.empty() ? few_ : many_.data())[i]; }
  std::span<const Pointer> span() const { return {many_.empty() ? few_ : many_.data(), size_}; }

 private:
  static constexpr int kInline = 16;
  size_t size_;
  Pointer few_[kInline] = {};
  std::vector<Pointer> many_;
};

// A member's slice of `count` elements. Slices are whole cache lines: no two ranks write to one.
Part slice_of(size_t count, int members, int member) {
  const size_t lines = (count + 63) / 64;
  const Part part = part_of(lines, members, member);
  const size_t first = std::min(part.first * 64, count);
  return {first, std::min((part.first + part.count) * 64, count) - first};
}

}  // namespace

BoardCollectives::BoardCollectives(Board& board, AddressSpace& space, const BoardTuning& tuning)
    : board_(&board), space_(&space), tuning_(tuning) {
  tuning_.ring_bytes =
      std::max<size_t>(tuning_.ring_bytes * 4 / static_cast<size_t>(std::max(board.size(), 4)), 64 * 1024);
  tuning_.chunk_bytes = std::min(tuning_.chunk_bytes, tuning_.ring_bytes / 4);
  tuning_.flat_bytes = std::min(tuning_.flat_bytes, Board::stage_bytes(board.size()));
}

void BoardCollectives::meet(const Call& call, uint64_t place, uint32_t flags, uint64_t detail) {
  board_->meet({call.fingerprint, call.digest, place, detail, flags}, call.waiter);
}

std::byte* BoardCollectives::next_stage(size_t num_bytes) {
  if (num_bytes <= Board::stage_bytes(board_->size())) {
    small_stage_ ^= 1;
    stage_ = nullptr;
    return board_->stage(board_->rank(), small_stage_);
  }
  // Headers may make a stage a little larger than a quarter of the ring; three of them always fit.
  if (ring_ == nullptr) {
    ring_ = static_cast<std::byte*>(space_->allocate(tuning_.ring_bytes));
    std::memset(ring_, 0, tuning_.ring_bytes);  // the first touch of a page would look like a slow store
  }
  if (ring_at_ + num_bytes > tuning_.ring_bytes) ring_at_ = 0;
  stage_ = ring_ + ring_at_;
  ring_at_ = (ring_at_ + num_bytes + 4095) / 4096 * 4096;
  return stage_;
}

void StageWriter::copy(std::byte* stage, ConstData in) {
  constexpr int kCachedCopies = 16, kStreamedCopies = 64;
  const size_t num_bytes = in.num_bytes();
  if (num_bytes < 1024) return copy_bytes(stage, in.bytes, num_bytes);
  if (unwatched_ > 0) {
    --unwatched_;
    return copy_bytes(stage, in.bytes, num_bytes, streaming_ ? Stores::kStreaming : Stores::kCached);
  }
  const Clock::time_point start = Clock::now();
  copy_bytes(stage, in.bytes, num_bytes);
  const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  streaming_ = ns > slow_line_ns_ * static_cast<double>(num_bytes / 64);
  unwatched_ = streaming_ ? kStreamedCopies : kCachedCopies;
}

void BoardCollectives::copy_to_stage(std::byte* stage, ConstData in) {
  (stage_ == nullptr ? short_writer_ : long_writer_).copy(stage, in);
}

void BoardCollectives::meet_with_stage(const Call& call, uint64_t detail) {
  if (stage_ == nullptr) return meet(call, static_cast<uint64_t>(small_stage_), kSmallStage, detail);
  meet(call, *space_->place_of(stage_, 1), 0, detail);
}

std::optional<uint64_t> BoardCollectives::direct_place(ConstData data) const {
  if (data.num_bytes() <= tuning_.flat_bytes) return std::nullopt;
  return space_->place_of(data.bytes, data.num_bytes());
}

bool BoardCollectives::shows_directly(int member) const { return (board_->post(member).flags & kDirect) != 0; }

bool BoardCollectives::all_show_directly() const {
  for (int member = 0; member < board_->size(); ++member) {
    if (!shows_directly(member)) return false;
  }
  return true;
}

bool BoardCollectives::any_shows_directly() const {
  for (int member = 0; member < board_->size(); ++member) {
    if (shows_directly(member)) return true;
  }
  return false;
}

const std::byte* BoardCollectives::shown(int member) const {
  const Board::Post& post = board_->post(member);
  return post.flags & kSmallStage ? board_->stage(member, static_cast<int>(post.place)) : board_->place_at(member);
}

void BoardCollectives::take(int member, size_t at_bytes, Data out, Stores stores) {
  if (out.count > 0) copy(out, {shown(member) + at_bytes, out.count, out.type}, stores);
}

template <typename Position>
void BoardCollectives::take_reduced(const void* own, Position at_bytes, Data out, ReduceOp op, Stores stores) {
  const int p = board_->size();
  Pointers<const void*> sources(p);
  for (int member = 0; member < p; ++member) {
    sources[member] = member == board_->rank() ? own : shown(member) + at_bytes(member);
  }
  void* const destinations[] = {out.bytes};
  reduce_tree(op, out.type, sources.span(), destinations, out.count, static_cast<size_t>(p), stores);
}

Stores BoardCollectives::stores_for(size_t num_bytes) const {
  return num_bytes * static_cast<size_t>(board_->size()) >= tuning_.streaming_bytes ? Stores::kStreaming
                                                                                    : Stores::kCached;
}

size_t BoardCollectives::chunk_elements(DataType type, int blocks) const {
  const size_t elements = tuning_.chunk_bytes / size_of(type) / static_cast<size_t>(blocks);
  return std::max<size_t>(elements / 64 * 64, 64);
}

void BoardCollectives::barrier(const Call& call) { meet(call, 0); }

void BoardCollectives::broadcast(const Call& call, Data data, int root) {
  const bool is_root = board_->rank() == root;
  const size_t chunk = chunk_elements(data.type);
  const auto place = is_root ? direct_place(data) : std::nullopt;
  for (size_t first = 0; first == 0 || first < data.count; first += chunk) {
    const Data part = data.part(first, std::min(chunk, data.count - first));
    if (!is_root) {
      meet(call, 0);
    } else if (place) {
      meet(call, *place, kDirect);
    } else {
      copy_to_stage(next_stage(part.num_bytes()), part);
      meet_with_stage(call);
    }
    if (shows_directly(root)) {
      if (!is_root) take(root, 0, data, stores_for(data.num_bytes()));
      return meet(call, 0);
    }
    if (!is_root) take(root, 0, part, stores_for(data.num_bytes()));
  }
}

template <typename Read>
void BoardCollectives::show_blocks(const Call& call, ConstData in, size_t block, int blocks, bool is_shown, Read read) {
  const size_t chunk = chunk_elements(in.type, blocks), width = size_of(in.type);
  const size_t spacing = std::min(chunk, block);  // of the blocks on a stage
  const auto place = is_shown ? direct_place(in) : std::nullopt;
  bool closing = false;
  for (size_t first = 0; first == 0 || first < block; first += chunk) {
    const size_t count = std::min(chunk, block - first);
    if (!is_shown) {
      meet(call, 0);
    } else if (place) {
      meet(call, *place, kDirect);
    } else {
      std::byte* stage = next_stage(spacing * static_cast<size_t>(blocks) * width);
      for (int b = 0; b < blocks; ++b) {
        if (blocks > 1 && b == board_->rank()) continue;  // read by nobody else
        copy_to_stage(stage + static_cast<size_t>(b) * spacing * width,
                      in.part(static_cast<size_t>(b) * block + first, count));
      }
      meet_with_stage(call);
    }
    closing = closing || any_shows_directly();
    const bool at_once = first == 0 && all_show_directly();
    const auto position = [&](int member, int b) {
      const size_t at =
          shows_directly(member) ? static_cast<size_t>(b) * block + first : static_cast<size_t>(b) * spacing;
      return at * width;
    };
    read(position, first, at_once ? block : count);
    if (at_once) break;
  }
  if (closing) meet(call, 0);
}

void BoardCollectives::scatter(const Call& call, ConstData in, Data out, int root) {
  const int rank = board_->rank();
  if (rank != root) in = ConstData(nullptr, 0, out.type);
  show_blocks(call, in, out.count, board_->size(), rank == root, [&](auto position, size_t first, size_t count) {
    const Data part = out.part(first, count);
    if (rank == root) {
      copy(part, in.part(static_cast<size_t>(root) * out.count + first, count));
    } else {
      take(root, position(root, rank), part);
    }
  });
}

void BoardCollectives::gather(const Call& call, ConstData in, Data out, int root) {
  show_blocks(call, in, in.count, 1, true, [&](auto position, size_t first, size_t count) {
    if (board_->rank() != root) return;
    for (int member = 0; member < board_->size(); ++member) {
      const Data part = out.part(static_cast<size_t>(member) * in.count + first, count);
      if (member == root) {
        copy(part, in.part(first, count));
      } else {
        take(member, position(member, 0), part);
      }
    }
  });
}

void BoardCollectives::all_gather(const Call& call, ConstData in, Data out) {
  const int p = board_->size(), rank = board_->rank();
  const Stores stores = stores_for(in.num_bytes());
  show_blocks(call, in, in.count, 1, true, [&](auto position, size_t first, size_t count) {
    for (int step = 0; step < p; ++step) {
      const int member = rank + step < p ? rank + step : rank + step - p;
      const Data part = out.part(static_cast<size_t>(member) * in.count + first, count);
      if (step == 0) {
        copy(part, in.part(first, count), stores);
      } else {
        take(member, position(member, 0), part, stores);
      }
    }
  });
}

void BoardCollectives::all_gather_v(const Call& call, ConstData in, Data out, std::span<const size_t> counts) {
  const int p = board_->size(), rank = board_->rank();
  const size_t longest = *std::max_element(counts.begin(), counts.end());
  const size_t chunk = chunk_elements(out.type), width = size_of(out.type);
  const auto place = direct_place(in);
  bool closing = false;
  for (size_t first = 0; first == 0 || first < longest; first += chunk) {
    const size_t count = in.count > first ? std::min(chunk, in.count - first) : 0;
    if (place) {
      meet(call, *place, kDirect);
    } else if (count > 0) {
      copy_to_stage(next_stage(count * width), in.part(first, count));
      meet_with_stage(call);
    } else {
      meet(call, 0);
    }
    closing = closing || any_shows_directly();
    const bool at_once = first == 0 && all_show_directly();
    size_t offset = 0;
    for (int member = 0; member < p; ++member) {
      const size_t all = counts[static_cast<size_t>(member)];
      const size_t here = all > first ? (at_once ? all : std::min(chunk, all - first)) : 0;
      const Data part = out.part(offset + std::min(first, all), here);
      const Stores stores = stores_for(out.num_bytes() / static_cast<size_t>(p));
      if (member == rank) {
        const ConstData own = in.part(std::min(first, all), here);
        if (own.bytes != part.bytes) copy(part, own, stores);
      } else {
        take(member, shows_directly(member) ? first * width : 0, part, stores);
      }
      offset += all;
    }
    if (at_once) break;
  }
  if (closing) meet(call, 0);
}

void BoardCollectives::reduce(const Call& call, ConstData in, Data out, ReduceOp op, int root) {
  show_blocks(call, in, in.count, 1, true, [&](auto position, size_t first, size_t count) {
    if (board_->rank() != root) return;
    take_reduced(
        in.part(first, 0).bytes, [&](int member) { return position(member, 0); }, out.part(first, count), op);
  });
}

void BoardCollectives::reduce_scatter(const Call& call, ConstData in, Data out, ReduceOp op) {
  reduce_scatter_v(call, in, out, std::vector<size_t>(static_cast<size_t>(board_->size()), out.count), op);
}

void BoardCollectives::reduce_scatter_v(const Call& call, ConstData in, Data out, std::span<const size_t> counts,
                                        ReduceOp op) {
  const auto p = static_cast<size_t>(board_->size()), rank = static_cast<size_t>(board_->rank());
  const size_t longest = *std::max_element(counts.begin(), counts.end()), width = size_of(in.type);
  const size_t chunk = chunk_elements(in.type, board_->size()), spacing = std::min(chunk, longest);
  std::vector<size_t> starts(p, 0);
  for (size_t r = 1; r < p; ++r) starts[r] = starts[r - 1] + counts[r - 1];
  const auto place = direct_place(in);
  bool closing = false;
  for (size_t first = 0; first == 0 || first < longest; first += chunk) {
    const auto here = [&](size_t r) { return counts[r] > first ? std::min(chunk, counts[r] - first) : 0; };
    if (place) {
      meet(call, *place, kDirect);
    } else {
      std::byte* stage = next_stage(spacing * p * width);
      for (size_t r = 0; r < p; ++r) {
        if (r == rank || here(r) == 0) continue;  // its own part is read by nobody else
        copy_to_stage(stage + r * spacing * width, in.part(starts[r] + first, here(r)));
      }
      meet_with_stage(call);
    }
    closing = closing || any_shows_directly();
    const bool at_once = first == 0 && all_show_directly();
    const size_t count = at_once ? out.count : here(rank);
    if (count > 0) {
      take_reduced(
          in.part(starts[rank] + first, 0).bytes,
          [&](int member) { return (shows_directly(member) ? starts[rank] + first : rank * spacing) * width; },
          out.part(first, count), op, stores_for(out.num_bytes()));
    }
    if (at_once) break;
  }
  if (closing) meet(call, 0);
}

void BoardCollectives::all_reduce(const Call& call, Data data, ReduceOp op) {
  const size_t num_bytes = data.num_bytes();
  if (num_bytes <= tuning_.in_place_bytes) return all_reduce_flat(call, data, op);
  const bool is_short = num_bytes <= tuning_.flat_bytes;
  const auto place = space_->place_of(data.bytes, num_bytes);
  if (place) {
    meet(call, *place, kDirect);
    if (all_show_directly()) return all_reduce_in_place(call, data, op);
    if (!is_short) return all_reduce_staged(call, data, op);
  } else {
    if (!is_short) return all_reduce_staged(call, data, op);
    copy_to_stage(next_stage(num_bytes), data);
    meet_with_stage(call);
    if (!any_shows_directly()) {
      return take_reduced(
          data.bytes, [](int) { return size_t{0}; }, data, op);
    }
  }
  // Some can be reached and some cannot: once more, with a copy of everybody's.
  all_reduce_flat(call, data, op);
}

void BoardCollectives::all_reduce_flat(const Call& call, Data data, ReduceOp op) {
  if (data.count == 0) return meet(call, 0);
  copy_to_stage(next_stage(data.num_bytes()), data);
  meet_with_stage(call);
  take_reduced(
      data.bytes, [](int) { return size_t{0}; }, data, op);
}

// Every buffer is in reach: each rank sums its slice of all of them and writes it back to all of them.
void BoardCollectives::all_reduce_in_place(const Call& call, Data data, ReduceOp op) {
  const int p = board_->size();
  const Part slice = slice_of(data.count, p, board_->rank());
  Pointers<const void*> sources(p);
  Pointers<void*> destinations(p);
  for (int member = 0; member < p; ++member) {
    destinations[member] = board_->place_at(member) + slice.first * size_of(data.type);
    sources[member] = destinations[member];
  }
  reduce_tree(op, data.type, sources.span(), destinations.span(), slice.count, static_cast<size_t>(p),
              stores_for(data.num_bytes()));
  meet(call, 0);
}

// Chunk by chunk; a rank whose buffer is in shared memory shows it instead of a stage.
void BoardCollectives::all_reduce_staged(const Call& call, Data data, ReduceOp op) {
  const int p = board_->size(), rank = board_->rank();
  const size_t chunk = chunk_elements(data.type), width = size_of(data.type);
  const auto place = direct_place(data);
  bool closing = false;
  for (size_t first = 0; first < data.count; first += chunk) {
    const Data part = data.part(first, std::min(chunk, data.count - first));
    const Part own = slice_of(part.count, p, rank);
    const Data target = part.part(own.first, own.count);
    if (!place) {
      // The rank's own slice is read by nobody else.
      std::byte* stage = next_stage(part.num_bytes());
      const size_t after = own.first + own.count;
      copy_to_stage(stage, part.part(0, own.first));
      copy_to_stage(stage + after * width, part.part(after, part.count - after));
      meet_with_stage(call);
    } else if (first > 0) {
      meet(call, *place, kDirect);
    }
    closing = closing || any_shows_directly();
    take_reduced(
        target.bytes, [&](int member) { return (own.first + (shows_directly(member) ? first : 0)) * width; }, target,
        op);
    if (place) {
      meet(call, *place, kDirect);
    } else {
      copy_to_stage(next_stage(target.num_bytes()), target);
      meet_with_stage(call);
    }
    for (int step = 1; step < p; ++step) {
      const int member = (rank + step) % p;
      const Part slice = slice_of(part.count, p, member);
      take(member, shows_directly(member) ? (first + slice.first) * width : 0, part.part(slice.first, slice.count),
           stores_for(data.num_bytes()));
    }
  }
  if (closing) meet(call, 0);
}

void BoardCollectives::all_to_all(const Call& call, ConstData in, Data out) {
  const int p = board_->size(), rank = board_->rank();
  const size_t block = in.count / static_cast<size_t>(p);
  const Stores stores = stores_for(in.num_bytes());
  show_blocks(call, in, block, p, true, [&](auto position, size_t first, size_t count) {
    for (int step = 0; step < p; ++step) {
      const int member = rank + step < p ? rank + step : rank + step - p;
      const Data part = out.part(static_cast<size_t>(member) * block + first, count);
      if (step == 0) {
        copy(part, in.part(static_cast<size_t>(rank) * block + first, count), stores);
      } else {
        take(member, position(member, rank), part, stores);
      }
    }
  });
}

void BoardCollectives::all_to_all_v(const Call& call, ConstData in, std::span<const size_t> send_counts, Data out,
                                    std::span<const size_t> recv_counts) {
  const int p = board_->size(), rank = board_->rank();
  // Unequal blocks: nobody knows the counts of others, so a stage begins with the sender's list of them, and each
  // member says at its meetings how many chunks it needs and how far apart its blocks are.
  const size_t chunk = chunk_elements(out.type, p), width = size_of(out.type);
  const size_t list_bytes = (sizeof(uint64_t) * static_cast<size_t>(p) + 63) / 64 * 64;
  const size_t longest = *std::max_element(send_counts.begin(), send_counts.end());
  const uint64_t chunks = (longest + chunk - 1) / chunk, spacing = std::min(chunk, longest);
  std::vector<uint64_t> list(static_cast<size_t>(p));
  for (size_t rounds = 1, round = 0; round < rounds; ++round) {
    const size_t first = round * chunk;
    const auto here = [&](size_t all) { return all > first ? std::min(chunk, all - first) : 0; };
    std::byte* stage = next_stage(list_bytes + spacing * static_cast<size_t>(p) * width);
    std::copy(send_counts.begin(), send_counts.end(), list.begin());
    std::memcpy(stage, list.data(), sizeof(uint64_t) * list.size());
    size_t from = 0;
    for (size_t to = 0; to < static_cast<size_t>(p); ++to) {
      copy_to_stage(stage + list_bytes + to * spacing * width,
                    in.part(from + std::min(first, send_counts[to]), here(send_counts[to])));
      from += send_counts[to];
    }
    meet_with_stage(call, chunks | spacing << 32);
    for (int member = 0; member < p; ++member) {
      rounds = std::max<size_t>(rounds, board_->post(member).detail & 0xffffffff);
    }
    size_t at = 0;
    for (int member = 0; member < p; ++member) {
      const size_t wanted = recv_counts[static_cast<size_t>(member)];
      take(member, 0, {list.data(), list.size() * sizeof(uint64_t), DataType::kUInt8});
      if (list[static_cast<size_t>(rank)] != wanted) throw OperationMismatch{member, board_->post(member).digest};
      const uint64_t their_spacing = board_->post(member).detail >> 32;
      take(member, list_bytes + static_cast<size_t>(rank) * their_spacing * width,
           out.part(at + std::min(first, wanted), here(wanted)));
      at += wanted;
    }
  }
}

}  // namespace trireme
