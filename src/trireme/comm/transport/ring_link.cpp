#include "trireme/comm/transport/ring_link.h"

#include <algorithm>
#include <deque>

#include "trireme/comm/host/waiter.h"
#include "trireme/comm/reduce/reduce.h"

namespace trireme {
namespace {

// The writer advances `written`, the reader `read`; both only grow. The writer allocates the ring on its first write.
struct Ring {
  alignas(128) std::atomic<uint64_t> written;
  alignas(128) std::atomic<uint64_t> read;
  alignas(128) uint64_t capacity;
  alignas(128) std::byte data[1];

  static size_t num_bytes(size_t capacity) { return sizeof(Ring) + capacity; }
};

// A long copy is published in pieces, so that the two ends work at the same time.
constexpr size_t kPiece = 16 * 1024;

class RingLink : public Link {
 public:
  explicit RingLink(const RingEnds& ends) : ends_(ends) {}
  ~RingLink() override {
    if (out_ != nullptr) ends_.retired->push_back(out_);
  }

  size_t write_some(ConstBytes data) override {
    if (out_ == nullptr) open_out();
    const uint64_t mask = out_->capacity - 1;
    uint64_t written = out_->written.load(std::memory_order_relaxed);
    size_t total = 0;
    while (total < data.size()) {
      if (written + kPiece - seen_read_ > out_->capacity) seen_read_ = out_->read.load(std::memory_order_acquire);
      const size_t room = out_->capacity - (written - seen_read_);
      const size_t until_wrap = out_->capacity - (written & mask);
      const size_t n = std::min({data.size() - total, room, until_wrap, kPiece});
      if (n == 0) break;
      copy_bytes(out_->data + (written & mask), data.data() + total, n,
                 Stores::kStreaming);  // [Note: Stores to stages]
      written += n;
      total += n;
      out_->written.store(written, std::memory_order_seq_cst);
      ring_bell();
    }
    return total;
  }

  size_t read_some(Bytes data) override {
    if (in_ == nullptr && !open_in()) return 0;
    const uint64_t mask = in_->capacity - 1;
    uint64_t read = in_->read.load(std::memory_order_relaxed);
    size_t total = 0;
    while (total < data.size()) {
      if (seen_written_ == read) seen_written_ = in_->written.load(std::memory_order_acquire);
      const size_t until_wrap = in_->capacity - (read & mask);
      const size_t n = std::min({data.size() - total, static_cast<size_t>(seen_written_ - read), until_wrap, kPiece});
      if (n == 0) break;
      copy_bytes(data.data() + total, in_->data + (read & mask), n);
      read += n;
      total += n;
      in_->read.store(read, std::memory_order_seq_cst);
      ring_bell();
    }
    return total;
  }

 private:
  void ring_bell() {
    Mailbox& peer = *ends_.peer_mailbox;
    if (peer.sleepers.load(std::memory_order_seq_cst) != 0) {
      peer.bell.fetch_add(1, std::memory_order_seq_cst);
      wake_all(peer.bell);
    }
  }

  void open_out() {
    out_ = static_cast<Ring*>(ends_.space->allocate(Ring::num_bytes(ends_.capacity)));
    out_->capacity = ends_.capacity;
    const auto place = ends_.space->place_of(out_, 1);
    ends_.own_mailbox->rings[ends_.peer_group_rank].store(*place, std::memory_order_release);
  }

  bool open_in() {
    Mailbox& peer = *ends_.peer_mailbox;
    const uint64_t place = peer.rings[ends_.own_group_rank].load(std::memory_order_acquire);
    if (place == 0) return false;
    in_ = reinterpret_cast<Ring*>(ends_.space->at(ends_.peer_world_rank, place));
    return true;
  }

  RingEnds ends_;
  Ring* out_ = nullptr;
  Ring* in_ = nullptr;
  uint64_t seen_read_ = 0, seen_written_ = 0;
};

class LoopbackLink : public Link {
 public:
  size_t write_some(ConstBytes data) override {
    bytes_.insert(bytes_.end(), data.begin(), data.end());
    return data.size();
  }
  size_t read_some(Bytes data) override {
    const size_t n = std::min(data.size(), bytes_.size());
    std::copy_n(bytes_.begin(), n, data.begin());
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(n));
    return n;
  }

 private:
  std::deque<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<Link> make_loopback_link() { return std::make_unique<LoopbackLink>(); }
std::unique_ptr<Link> make_ring_link(const RingEnds& ends) { return std::make_unique<RingLink>(ends); }

}  // namespace trireme
