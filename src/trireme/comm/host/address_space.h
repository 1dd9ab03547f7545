// Memory that all ranks of a host can reach, whether they are threads of one process or processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

/// The memory of a peer cannot be reached, most often because the peer has ended.
class PeerUnreachable : public Error {
 public:
  PeerUnreachable(int peer, const std::string& cause, const std::string& cure) : Error(cause, cure), peer_(peer) {}
  int peer() const { return peer_; }  ///< world rank

 private:
  int peer_;
};

/// Allocates memory for one rank and finds the memory of its peers on the same host. Thread-safe. A *place* is the
/// position of memory in its owner's space: meaningful to every peer, where a pointer is not.
class AddressSpace {
 public:
  using Place = uint64_t;
  virtual ~AddressSpace() = default;

  /// Zeroed, 64-byte aligned. Throws Error with the size needed and the cure when there is no memory left.
  virtual void* allocate(size_t num_bytes) = 0;
  virtual void release(void* memory) noexcept = 0;

  /// The place of own memory, or nothing when peers cannot reach it.
  virtual std::optional<Place> place_of(const void* memory, size_t num_bytes) const = 0;
  /// Where a peer's memory is in this process. Maps the peer's space on first use; throws PeerUnreachable.
  virtual std::byte* at(int world_rank, Place place) = 0;

  /// An area of a peer's space that exists without asking, zero at the start: the world's board and mailbox.
  virtual std::byte* fixed_area(int world_rank) = 0;
};

/// Bytes of the fixed area that a world of this size needs.
size_t fixed_area_bytes(int world_size);

/// For processes: an anonymous memory file that peers open through /proc, so it has no name and no size limit but the
/// machine's memory, and nothing is left of it when the last process ends, however it ends.
class HostSharedHeap : public AddressSpace {
 public:
  /// How peers find this heap; travels in Member::blob. Must outlive nothing: it is only a description.
  struct Ticket {
    int pid = 0;
    int fd = -1;
    uint64_t secret = 0;  ///< also at the head of the file: a reused pid is not mistaken for the peer
  };

  HostSharedHeap(int world_size, uint64_t secret);
  ~HostSharedHeap() override;

  Ticket ticket() const;
  /// Who the peers are; called once, before the first at().
  void set_peers(std::vector<std::optional<Ticket>> tickets, int own_rank);

  void* allocate(size_t num_bytes) override;
  void release(void* memory) noexcept override;
  std::optional<Place> place_of(const void* memory, size_t num_bytes) const override;
  std::byte* at(int world_rank, Place place) override;
  std::byte* fixed_area(int world_rank) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// For threads: every pointer is a place.
class ThreadSpace : public AddressSpace {
 public:
  /// The fixed areas of all ranks, shared by their spaces. Pages are taken when they are touched.
  class FixedAreas {
   public:
    explicit FixedAreas(int world_size);
    ~FixedAreas();
    std::byte* of(int world_rank) const { return base_ + static_cast<size_t>(world_rank) * stride_; }

   private:
    size_t stride_, size_;
    std::byte* base_;
  };

  explicit ThreadSpace(std::shared_ptr<FixedAreas> areas) : areas_(std::move(areas)) {}
  void* allocate(size_t num_bytes) override;
  void release(void* memory) noexcept override;
  std::optional<Place> place_of(const void* memory, size_t) const override { return reinterpret_cast<Place>(memory); }
  std::byte* at(int, Place place) override { return reinterpret_cast<std::byte*>(place); }
  std::byte* fixed_area(int world_rank) override { return areas_->of(world_rank); }

 private:
  std::shared_ptr<FixedAreas> areas_;
};

/// Where a rank's rings to its same-host peers are found, and the bell that wakes it.
/// In shared memory, one for each member of a group; zero at the start.
struct Mailbox {
  alignas(64) std::atomic<uint32_t> bell;      ///< changed by peers to wake the owner
  std::atomic<uint32_t> sleepers;              ///< threads of the owner asleep on the bell
  std::atomic<uint32_t> left;                  ///< same-host members, the owner among them, that have left the group
  alignas(64) std::atomic<uint64_t> rings[1];  ///< place of the ring to each member; 0 until it exists

  static size_t num_bytes(int members) { return 64 + sizeof(Mailbox) + 8 * static_cast<size_t>(members); }
};

}  // namespace trireme
