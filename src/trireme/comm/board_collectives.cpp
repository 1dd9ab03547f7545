#include "trireme/comm/board_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "trireme/comm/messenger.h"

namespace trireme {
namespace {

constexpr uint32_t kDirect = 1;      // the post's place is the operand itself
constexpr uint32_t kSmallStage = 2;  // it is the number of a stage on the board

void copy(Data out, ConstData in, Stores stores = Stores::kCached) {
  if (in.count > 0 && out.bytes != in.bytes) copy_bytes(out.bytes, in.bytes, in.num_bytes(), stores);
}

// To a stage: see [Note: Staging].
void copy_to_stage(std::byte* stage, ConstData in) {
  copy_bytes(stage, in.bytes, in.num_bytes(), Stores::kStreaming);
}

// Sources and destinations of a reduction, without allocating for the usual numbers of ranks.
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

}  // namespace

BoardCollectives::BoardCollectives(Board& board, AddressSpace& space, const BoardTuning& tuning)
    : board_(&board), space_(&space), tuning_(tuning) {
  // The rings of all ranks share one cache.
  const size_t share = static_cast<size_t>(std::max(board.size() / 4, 1));
  tuning_.ring_bytes = std::max<size_t>(tuning_.ring_bytes / share, 256 * 1024);
  tuning_.chunk_bytes = std::min(tuning_.chunk_bytes, tuning_.ring_bytes / 4);
  tuning_.flat_bytes = std::min(tuning_.flat_bytes, board.size() <= 16 ? tuning_.ring_bytes / 4
                                                                        : Board::stage_bytes(board.size()));
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
  if (ring_ == nullptr) ring_ = static_cast<std::byte*>(space_->allocate(tuning_.ring_bytes));
  // Lists of counts may make a stage a little larger than a chunk; a quarter of the ring still leaves three others.
  if (ring_at_ + num_bytes > tuning_.ring_bytes) ring_at_ = 0;
  stage_ = ring_ + ring_at_;
  ring_at_ = (ring_at_ + num_bytes + 4095) / 4096 * 4096;
  return stage_;
}

void BoardCollectives::meet_with_stage(const Call& call, uint64_t detail) {
  if (stage_ == nullptr) return meet(call, static_cast<uint64_t>(small_stage_), kSmallStage, detail);
  meet(call, *space_->place_of(stage_, 1), 0, detail);
}

std::byte* BoardCollectives::shown(int member) const {
  const Board::Post& post = board_->post(member);
  return post.flags & kSmallStage ? board_->stage(member, static_cast<int>(post.place)) : board_->place_at(member);
}

std::optional<uint64_t> BoardCollectives::direct_place(ConstData data) const {
  if (data.num_bytes() <= tuning_.flat_bytes) return std::nullopt;
  return space_->place_of(data.bytes, data.num_bytes());
}

bool BoardCollectives::any_direct() const {
  for (int member = 0; member < board_->size(); ++member) {
    if (board_->post(member).flags & kDirect) return true;
  }
  return false;
}

bool BoardCollectives::all_direct() const {
  for (int member = 0; member < board_->size(); ++member) {
    if (!(board_->post(member).flags & kDirect)) return false;
  }
  return true;
}

Stores BoardCollectives::stores_for(size_t num_bytes) const {
  return num_bytes * static_cast<size_t>(board_->size()) >= tuning_.streaming_bytes ? Stores::kStreaming
                                                                                    : Stores::kCached;
}

size_t BoardCollectives::chunk_elements(DataType type, int blocks) const {
  // Whole cache lines, so that no two ranks write to one.
  const size_t elements = tuning_.chunk_bytes / size_of(type) / static_cast<size_t>(blocks);
  return std::max<size_t>(elements / 64 * 64, 64);
}

void BoardCollectives::barrier(const Call& call) { meet(call, 0); }

void BoardCollectives::broadcast(const Call& call, Data data, int root) {
  const bool is_root = board_->rank() == root;
  const size_t chunk = chunk_elements(data.type);
  for (size_t first = 0; first == 0 || first < data.count; first += chunk) {
    const size_t count = std::min(chunk, data.count - first);
    if (!is_root) {
      meet(call, 0);
    } else if (const auto place = direct_place(data); place && first == 0) {
      meet(call, *place, kDirect);
    } else {
      copy_to_stage(next_stage(count * size_of(data.type)), data.part(first, count));
      meet_with_stage(call);
    }
    if (board_->post(root).flags & kDirect) {
      if (!is_root) copy(data, {shown(root), data.count, data.type}, stores_for(data.num_bytes()));
      meet(call, 0);
      return;
    }
    if (!is_root) copy(data.part(first, count), {shown(root), count, data.type});
  }
}

template <typename Read>
void BoardCollectives::show_blocks(const Call& call, ConstData in, size_t block, int blocks, bool shows, Read read) {
  const size_t chunk = chunk_elements(in.type, blocks);
  bool closing = false;
  for (size_t first = 0; first == 0 || first < block; first += chunk) {
    const size_t count = std::min(chunk, block - first);
    // Small data is packed tightly, so that a stage is no larger than it has to be.
    const size_t spacing = std::min(chunk, block);
    if (!shows) {
      meet(call, 0);
    } else if (const auto place = direct_place(in)) {
      meet(call, *place, kDirect);
    } else {
      std::byte* stage = next_stage(spacing * static_cast<size_t>(blocks) * size_of(in.type));
      for (int b = 0; b < blocks; ++b) {
        copy_to_stage(stage + static_cast<size_t>(b) * spacing * size_of(in.type),
                      in.part(static_cast<size_t>(b) * block + first, count));
      }
      meet_with_stage(call);
    }
    closing = closing || any_direct();
    // With every operand in reach there is nothing to gain from chunks.
    const bool whole = first == 0 && all_direct();
    const auto piece = [&](int member, int b) {
      const bool direct = board_->post(member).flags & kDirect;
      const size_t at = direct ? static_cast<size_t>(b) * block + first : static_cast<size_t>(b) * spacing;
      return shown(member) + at * size_of(in.type);
    };
    read(piece, first, whole ? block : count);
    if (whole) break;
  }
  if (closing) meet(call, 0);
}

void BoardCollectives::scatter(const Call& call, ConstData in, Data out, int root) {
  const bool is_root = board_->rank() == root;
  if (!is_root) in = ConstData(nullptr, 0, out.type);
  show_blocks(call, in, out.count, board_->size(), is_root, [&](auto piece, size_t first, size_t count) {
    const void* from =
        is_root ? in.part(static_cast<size_t>(root) * out.count + first, 0).bytes : piece(root, board_->rank());
    copy(out.part(first, count), {from, count, out.type});
  });
}

void BoardCollectives::gather(const Call& call, ConstData in, Data out, int root) {
  show_blocks(call, in, in.count, 1, true, [&](auto piece, size_t first, size_t count) {
    if (board_->rank() != root) return;
    for (int member = 0; member < board_->size(); ++member) {
      const void* from = member == root ? in.part(first, 0).bytes : piece(member, 0);
      copy(out.part(static_cast<size_t>(member) * in.count + first, count), {from, count, in.type});
    }
  });
}

void BoardCollectives::all_gather(const Call& call, ConstData in, Data out, std::span<const size_t> counts) {
  const size_t longest = *std::max_element(counts.begin(), counts.end());
  const size_t chunk = chunk_elements(out.type);
  std::vector<size_t> offsets{0};
  for (const size_t count : counts) offsets.push_back(offsets.back() + count);
  bool closing = false;
  for (size_t first = 0; first == 0 || first < longest; first += chunk) {
    const size_t count = in.count > first ? std::min(chunk, in.count - first) : 0;
    const auto place = direct_place(in);
    if (place) {
      meet(call, *place + first * size_of(in.type), kDirect);
    } else if (count > 0) {
      copy_to_stage(next_stage(count * size_of(in.type)), in.part(first, count));
      meet_with_stage(call);
    } else {
      meet(call, 0);
    }
    closing = closing || any_direct();
    const bool whole = first == 0 && all_direct();
    for (int step = 0; step < board_->size(); ++step) {
      const int member = (board_->rank() + step) % board_->size();
      const size_t all = counts[static_cast<size_t>(member)];
      const size_t here = all > first ? (whole ? all : std::min(chunk, all - first)) : 0;
      if (here == 0) continue;
      const void* from = step == 0 ? in.part(first, 0).bytes : shown(member);
      copy(out.part(offsets[static_cast<size_t>(member)] + first, here), {from, here, in.type},
           whole ? stores_for(out.num_bytes() / static_cast<size_t>(board_->size())) : Stores::kCached);
    }
    if (whole) break;
  }
  if (closing) meet(call, 0);
}

void BoardCollectives::reduce(const Call& call, ConstData in, Data out, ReduceOp op, int root) {
  show_blocks(call, in, in.count, 1, true, [&](auto piece, size_t first, size_t count) {
    if (board_->rank() != root) return;
    Pointers<const void*> sources(board_->size());
    for (int member = 0; member < board_->size(); ++member) {
      sources[member] = member == root ? in.part(first, 0).bytes : piece(member, 0);
    }
    void* const destinations[] = {out.part(first, 0).bytes};
    reduce_tree(op, in.type, sources.span(), destinations, count, static_cast<size_t>(board_->size()),
                Stores::kCached);
  });
}

void BoardCollectives::reduce_scatter(const Call& call, ConstData in, Data out, ReduceOp op) {
  const int rank = board_->rank();
  show_blocks(call, in, out.count, board_->size(), true, [&](auto piece, size_t first, size_t count) {
    Pointers<const void*> sources(board_->size());
    for (int member = 0; member < board_->size(); ++member) {
      sources[member] = member == rank ? static_cast<const void*>(
                                             in.part(static_cast<size_t>(rank) * out.count + first, 0).bytes)
                                       : piece(member, rank);
    }
    void* const destinations[] = {out.part(first, 0).bytes};
    reduce_tree(op, in.type, sources.span(), destinations, count, static_cast<size_t>(board_->size()),
                count == out.count ? stores_for(in.num_bytes()) : Stores::kCached);
  });
}

void BoardCollectives::all_reduce(const Call& call, Data data, ReduceOp op) {
  const int p = board_->size(), rank = board_->rank();
  const size_t divisor = static_cast<size_t>(p);
  Pointers<const void*> sources(p);

  if (data.num_bytes() <= tuning_.flat_bytes) {
    if (data.count == 0) return meet(call, 0);
    copy_to_stage(next_stage(data.num_bytes()), data);
    meet_with_stage(call);
    for (int member = 0; member < p; ++member) {
      sources[member] = member == rank ? static_cast<const void*>(data.bytes) : shown(member);
    }
    void* const destinations[] = {data.bytes};
    reduce_tree(op, data.type, sources.span(), destinations, data.count, divisor);
    return;
  }

  // Slices are whole cache lines: no two ranks write to one.
  const auto slice_of = [&](size_t count, int member) {
    const size_t lines = (count + 63) / 64;
    const Part part = part_of(lines, p, member);
    const size_t first = std::min(part.first * 64, count);
    return Part{first, std::min((part.first + part.count) * 64, count) - first};
  };
  const auto place = direct_place(data);
  const size_t chunk = chunk_elements(data.type);
  bool closing = false;
  for (size_t first = 0; first < data.count; first += chunk) {
    const Data part = data.part(first, std::min(chunk, data.count - first));
    const Part own = slice_of(part.count, rank);
    const auto show_input = [&] {
      if (place) return meet(call, *place + first * size_of(data.type), kDirect);
      std::byte* stage = next_stage(part.num_bytes());
      copy_to_stage(stage, part.part(0, own.first));
      const size_t after = own.first + own.count;
      copy_to_stage(stage + after * size_of(data.type), part.part(after, part.count - after));
      meet_with_stage(call);
    };
    show_input();
    closing = closing || any_direct();

    if (first == 0 && all_direct()) {
      // Every buffer is in reach: each rank sums its slice of all of them and writes it back to all of them.
      const Part slice = slice_of(data.count, rank);
      Pointers<void*> destinations(p);
      for (int member = 0; member < p; ++member) {
        destinations[member] = shown(member) + slice.first * size_of(data.type);
        sources[member] = destinations[member];
      }
      reduce_tree(op, data.type, sources.span(), destinations.span(), slice.count, divisor,
                  stores_for(data.num_bytes()));
      break;
    }

    for (int member = 0; member < p; ++member) {
      sources[member] = member == rank ? static_cast<const void*>(part.part(own.first, 0).bytes)
                                       : shown(member) + own.first * size_of(data.type);
    }
    const Data own_part = part.part(own.first, own.count);
    void* const destinations[] = {own_part.bytes};
    reduce_tree(op, data.type, sources.span(), destinations, own.count, divisor);
    if (place) {
      meet(call, *place + (first + own.first) * size_of(data.type));
    } else {
      copy_to_stage(next_stage(own_part.num_bytes()), own_part);
      meet_with_stage(call);
    }
    for (int step = 1; step < p; ++step) {
      const int member = (rank + step) % p;
      const Part slice = slice_of(part.count, member);
      copy(part.part(slice.first, slice.count), {shown(member), slice.count, data.type});
    }
  }
  if (closing) meet(call, 0);
}

void BoardCollectives::all_to_all(const Call& call, ConstData in, std::span<const size_t> send_counts, Data out,
                                  std::span<const size_t> recv_counts) {
  // Nobody knows the counts of others, so a stage begins with the sender's list of them, and each member says at its
  // meetings how many chunks it needs.
  const int p = board_->size(), rank = board_->rank();
  const size_t chunk = chunk_elements(out.type, p);
  const size_t list_bytes = (sizeof(uint64_t) * static_cast<size_t>(p) + 63) / 64 * 64;
  const size_t longest = *std::max_element(send_counts.begin(), send_counts.end());
  const size_t width = std::min(chunk, longest);
  const bool equal = call.digest.kind == OperationKind::kAllToAll;
  const auto direct = equal ? direct_place(in) : std::nullopt;
  std::vector<size_t> send_at{0}, recv_at{0};
  for (const size_t count : send_counts) send_at.push_back(send_at.back() + count);
  for (const size_t count : recv_counts) recv_at.push_back(recv_at.back() + count);

  size_t rounds = 1;
  bool closing = false;
  for (size_t round = 0; round < rounds; ++round) {
    const size_t first = round * chunk;
    const auto piece_of = [&](size_t all) { return all > first ? std::min(chunk, all - first) : 0; };
    if (direct) {
      meet(call, *direct, kDirect, (longest + chunk - 1) / chunk);
    } else {
      std::byte* stage = next_stage(list_bytes + width * static_cast<size_t>(p) * size_of(in.type));
      for (int to = 0; to < p; ++to) {
        const auto i = static_cast<size_t>(to);
        const uint64_t count = send_counts[i];
        std::memcpy(stage + sizeof(uint64_t) * i, &count, sizeof count);
        const size_t here = piece_of(send_counts[i]);
        if (to != rank) {
          copy_to_stage(stage + list_bytes + i * width * size_of(in.type),
                        in.part(send_at[i] + std::min(first, send_counts[i]), here));
        }
      }
      meet_with_stage(call, (longest + chunk - 1) / chunk | static_cast<uint64_t>(width) << 32);
    }
    const bool whole = round == 0 && all_direct();
    closing = closing || any_direct();
    for (int member = 0; member < p; ++member) {
      rounds = std::max<size_t>(rounds, board_->post(member).detail & 0xffffffff);
    }
    for (int step = 0; step < p; ++step) {
      const int member = (rank + step) % p;
      const auto i = static_cast<size_t>(member);
      const auto& post = board_->post(member);
      const size_t here = whole ? recv_counts[i] : piece_of(recv_counts[i]);
      const size_t out_at = recv_at[i] + std::min(first, recv_counts[i]);
      if (member == rank) {
        if (send_counts[i] != recv_counts[i]) throw OperationMismatch{member, post.digest};
        copy(out.part(out_at, here), in.part(send_at[i] + std::min(first, send_counts[i]), here));
        continue;
      }
      const std::byte* theirs = shown(member);
      if (post.flags & kDirect) {
        copy(out.part(out_at, here),
             {theirs + (static_cast<size_t>(rank) * recv_counts[i] + first) * size_of(in.type), here, in.type},
             whole ? stores_for(in.num_bytes()) : Stores::kCached);
        continue;
      }
      uint64_t count = 0;
      std::memcpy(&count, theirs + sizeof(uint64_t) * static_cast<size_t>(rank), sizeof count);
      if (count != recv_counts[i]) throw OperationMismatch{member, post.digest};
      const size_t their_width = post.detail >> 32;
      copy(out.part(out_at, here),
           {theirs + list_bytes + static_cast<size_t>(rank) * their_width * size_of(in.type), here, in.type});
    }
    if (whole) break;
  }
  if (closing) meet(call, 0);
}

}  // namespace trireme
