#include "trireme/comm/host/address_space.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/comm/host/board.h"

namespace trireme {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGrain = 128;  // two cache lines: no false sharing, not even by the adjacent-line prefetcher
constexpr size_t kLarge = size_t{1} << 20;  // from here on, released memory goes back to the machine

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Address space is reserved for the largest heap a rank may have; memory is taken only when it is allocated.
size_t reserved_bytes(int world_size) {
  const size_t all = size_t{1} << 45;
  return std::min(size_t{1} << 38, all / static_cast<size_t>(world_size)) / kPage * kPage;
}

struct Header {
  uint64_t secret;
};

/// Beyond `ulimit -f` a call fails with EFBIG, which says all; the SIGXFSZ that comes with it would end the process.
class SizeSignalHeld {
 public:
  SizeSignalHeld() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~SizeSignalHeld() {
    const timespec at_once{0, 0};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SizeSignalHeld(const SizeSignalHeld&) = delete;

 private:
  sigset_t signal_, before_;
  bool was_pending_;
};

}  // namespace

size_t fixed_area_bytes(int world_size) {
  return Board::num_bytes(world_size) + round_up(Mailbox::num_bytes(world_size), 64);
}

struct HostSharedHeap::Impl {
  int fd = -1;
  std::byte* base = nullptr;
  size_t reserved = 0;
  size_t first = 0;  // of the allocatable part
  size_t end = 0;    // size of the file
  uint64_t secret = 0;
  std::mutex mutex;
  std::map<size_t, size_t> free_blocks;  // offset → size; neighbours are merged
  std::map<size_t, size_t> used_blocks;
  std::vector<std::optional<Ticket>> tickets;
  std::unique_ptr<std::atomic<std::byte*>[]> peers;

  void commit(size_t offset, size_t size) {
    const SizeSignalHeld held;
    int error = fault_errno("heap.commit");
    if (error == 0 && fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(size)) != 0) error = errno;
    if (error != 0) {
      throw SystemError(
          fmt::format("get {:.1f} MiB of shared memory ({:.1f} MiB are held)", static_cast<double>(size) / 0x1p20,
                      static_cast<double>(end) / 0x1p20),
          error,
          "the machine, its memory cgroup or the file-size limit (ulimit -f) has no room: free or raise that, use "
          "smaller buffers or fewer ranks on this host, or set TRIREME_TRANSPORT=tcp, which needs no shared memory");
    }
  }

  /// Gives the memory back to the machine; what is read there afterwards is zero.
  void punch(size_t offset, size_t size) const noexcept {
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(size));
  }

  void check_size(size_t num_bytes) const {
    if (num_bytes > reserved - first) {
      throw Error(fmt::format("a rank cannot hold more than {} GiB of communicator memory", reserved >> 30),
                  "use fewer or smaller buffers from Communicator::allocate()");
    }
  }

  void grow(size_t new_end) {
    check_size(new_end - first);
    commit(end, new_end - end);
    end = new_end;
  }
};

HostSharedHeap::HostSharedHeap(int world_size, uint64_t secret) : impl_(std::make_unique<Impl>()) {
  auto& heap = *impl_;
  heap.secret = secret;
  heap.reserved = reserved_bytes(world_size);
  heap.fd = memfd_create("trireme", MFD_CLOEXEC);
  if (heap.fd < 0) throw SystemError("create a memory file", errno, "set TRIREME_TRANSPORT=tcp");
  heap.first = round_up(kPage + fixed_area_bytes(world_size), kPage);
  heap.end = heap.first;
  // The fixed area is sparse: only the ranks that use theirs touch it.
  const SizeSignalHeld held;
  if (ftruncate(heap.fd, static_cast<off_t>(heap.first)) != 0) {
    const int error = errno;
    close(heap.fd);
    throw SystemError(fmt::format("size a memory file of {} bytes", heap.first), error, "raise ulimit -f");
  }
  void* base = mmap(nullptr, heap.reserved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, heap.fd, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    close(heap.fd);
    throw SystemError(fmt::format("reserve {} GiB of address space", heap.reserved >> 30), error, "raise ulimit -v");
  }
  heap.base = static_cast<std::byte*>(base);
  madvise(base, heap.reserved, MADV_HUGEPAGE);
  reinterpret_cast<Header*>(heap.base)->secret = secret;
}

HostSharedHeap::~HostSharedHeap() {
  if (impl_->peers) {
    for (size_t i = 0; i < impl_->tickets.size(); ++i) {
      std::byte* peer = impl_->peers[i].load();
      if (peer != nullptr && peer != impl_->base) munmap(peer, impl_->reserved);
    }
  }
  munmap(impl_->base, impl_->reserved);
  close(impl_->fd);
}

HostSharedHeap::Ticket HostSharedHeap::ticket() const { return {getpid(), impl_->fd, impl_->secret}; }

void HostSharedHeap::set_peers(std::vector<std::optional<Ticket>> tickets, int own_rank) {
  impl_->peers = std::make_unique<std::atomic<std::byte*>[]>(tickets.size());
  impl_->tickets = std::move(tickets);
  impl_->peers[static_cast<size_t>(own_rank)] = impl_->base;
}

void* HostSharedHeap::allocate(size_t num_bytes) {
  auto& heap = *impl_;
  heap.check_size(num_bytes);
  const size_t size = round_up(std::max<size_t>(num_bytes, 1), num_bytes >= kLarge ? kPage : kGrain);
  const size_t alignment = num_bytes >= kPage ? kPage : kGrain;
  std::lock_guard lock(heap.mutex);
  for (auto& [offset, available] : heap.free_blocks) {
    const size_t start = round_up(offset, alignment);
    if (start + size > offset + available) continue;
    const size_t block = offset, block_size = available;
    if (size >= kLarge) {
      // Part of it may have been small blocks, which keep what was in them.
      heap.punch(start, size);
      heap.commit(start, size);
    }
    heap.free_blocks.erase(block);
    if (start > block) heap.free_blocks[block] = start - block;
    if (block + block_size > start + size) heap.free_blocks[start + size] = block + block_size - start - size;
    heap.used_blocks[start] = size;
    if (size < kLarge) std::memset(heap.base + start, 0, size);
    return heap.base + start;
  }
  const size_t start = round_up(heap.end, alignment);
  const size_t new_end = start + round_up(size, size >= kLarge ? kPage : size_t{64} * 1024);
  const size_t old_end = heap.end;
  heap.grow(new_end);
  if (start > old_end) heap.free_blocks[old_end] = start - old_end;
  if (new_end > start + size) heap.free_blocks[start + size] = new_end - start - size;
  heap.used_blocks[start] = size;
  return heap.base + start;
}

void HostSharedHeap::release(void* memory) noexcept {
  auto& heap = *impl_;
  std::lock_guard lock(heap.mutex);
  size_t offset = static_cast<size_t>(static_cast<std::byte*>(memory) - heap.base);
  auto used = heap.used_blocks.find(offset);
  if (used == heap.used_blocks.end()) return;
  size_t size = used->second;
  heap.used_blocks.erase(used);
  if (size >= kLarge) heap.punch(offset, size);
  auto next = heap.free_blocks.lower_bound(offset);
  if (next != heap.free_blocks.end() && next->first == offset + size) {
    size += next->second;
    next = heap.free_blocks.erase(next);
  }
  if (next != heap.free_blocks.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  heap.free_blocks[offset] = size;
}

std::optional<AddressSpace::Place> HostSharedHeap::place_of(const void* memory, size_t num_bytes) const {
  const auto* bytes = static_cast<const std::byte*>(memory);
  if (bytes < impl_->base || bytes + num_bytes > impl_->base + impl_->reserved) return std::nullopt;
  return static_cast<Place>(bytes - impl_->base);
}

std::byte* HostSharedHeap::at(int world_rank, Place place) {
  auto& heap = *impl_;
  auto& slot = heap.peers[static_cast<size_t>(world_rank)];
  if (std::byte* base = slot.load(std::memory_order_acquire)) return base + place;

  std::lock_guard lock(heap.mutex);
  if (std::byte* base = slot.load()) return base + place;
  const auto& ticket = heap.tickets[static_cast<size_t>(world_rank)];
  if (!ticket) throw Error(fmt::format("rank {} is not on this host", world_rank));
  const std::string path = fmt::format("/proc/{}/fd/{}", ticket->pid, ticket->fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat info {};
  if (fd < 0 || fstat(fd, &info) != 0) {
    throw PeerUnreachable(
        world_rank,
        fmt::format("cannot open the memory of rank {} (pid {}): {}", world_rank, ticket->pid, std::strerror(errno)),
        "the rank has ended, or this system forbids it: then set TRIREME_TRANSPORT=tcp");
  }
  const auto is_gone = [&] {
    return PeerUnreachable(world_rank, fmt::format("pid {} is no longer rank {} of this job", ticket->pid, world_rank),
                           "the rank has ended");
  };
  if (!S_ISREG(info.st_mode) || info.st_size < static_cast<off_t>(heap.first)) {  // the number is used for another file
    close(fd);
    throw is_gone();
  }
  void* base = mmap(nullptr, heap.reserved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  const int error = errno;
  close(fd);
  if (base == MAP_FAILED) {
    throw SystemError(fmt::format("map the memory of rank {}", world_rank), error, "raise ulimit -v");
  }
  if (static_cast<Header*>(base)->secret != ticket->secret) {
    munmap(base, heap.reserved);
    throw is_gone();
  }
  slot.store(static_cast<std::byte*>(base), std::memory_order_release);
  return static_cast<std::byte*>(base) + place;
}

std::byte* HostSharedHeap::fixed_area(int world_rank) { return at(world_rank, kPage); }

ThreadSpace::FixedAreas::FixedAreas(int world_size)
    : stride_(round_up(fixed_area_bytes(world_size), kPage)), size_(stride_ * static_cast<size_t>(world_size)) {
  void* base = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw SystemError(fmt::format("reserve {} bytes of address space", size_), errno);
  base_ = static_cast<std::byte*>(base);
}

ThreadSpace::FixedAreas::~FixedAreas() { munmap(base_, size_); }

void* ThreadSpace::allocate(size_t num_bytes) {
  const size_t alignment = num_bytes >= kPage ? kPage : kGrain;
  const size_t size = round_up(std::max<size_t>(num_bytes, 1), alignment);
  void* memory = size >= num_bytes ? std::aligned_alloc(alignment, size) : nullptr;
  if (memory == nullptr) throw Error(fmt::format("no memory left for a buffer of {} bytes", num_bytes));
  std::memset(memory, 0, size);
  return memory;
}

void ThreadSpace::release(void* memory) noexcept { std::free(memory); }

}  // namespace trireme
