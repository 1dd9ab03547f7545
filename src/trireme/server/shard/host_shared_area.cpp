#include "trireme/server/shard/host_shared_area.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "trireme/base/sha256.h"

namespace trireme::server {
namespace {

constexpr size_t kPage = 4096;
constexpr uint32_t kMaxSlots = 256;
constexpr uint32_t kMaxSlotBytes = 256u << 20;

size_t area_bytes(const HostSharedTicket& ticket) { return kPage + 2 * size_t{ticket.num_slots} * ticket.slot_bytes; }

bool is_sane(const HostSharedTicket& ticket) {
  return ticket.num_slots > 0 && ticket.num_slots <= kMaxSlots && ticket.slot_bytes > 0 &&
         ticket.slot_bytes <= kMaxSlotBytes && ticket.slot_bytes % kPage == 0;
}

uint32_t index_of(const HostSharedTicket& ticket, HostSharedArea::Side sender, uint32_t number) {
  return number + (sender == HostSharedArea::Side::kServer ? ticket.num_slots : 0);
}

std::atomic_ref<uint32_t> flag_at(std::byte* base, uint32_t index) {
  return std::atomic_ref<uint32_t>(reinterpret_cast<uint32_t*>(base + 64)[index]);
}

}  // namespace

HostSharedArea HostSharedArea::make(uint32_t num_slots, uint32_t slot_bytes) {
  HostSharedArea area;
  area.ticket_ = {getpid(), -1, 0, num_slots, static_cast<uint32_t>((slot_bytes + kPage - 1) / kPage * kPage)};
  if (!is_sane(area.ticket_)) return {};
  const int fd = memfd_create("trireme-server", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return {};
  area.ticket_.fd = fd;
  area.size_ = area_bytes(area.ticket_);
  void* base = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(area.size_)) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0) {
    base = mmap(nullptr, area.size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (base == MAP_FAILED) {
    close(fd);
    area.ticket_.fd = -1;
    return {};
  }
  area.base_ = static_cast<std::byte*>(base);
  fill_random(std::as_writable_bytes(std::span(&area.ticket_.secret, 1)));
  *reinterpret_cast<uint64_t*>(area.base_) = area.ticket_.secret;
  return area;
}

HostSharedArea HostSharedArea::open(const HostSharedTicket& ticket) {
  if (ticket.fd < 0 || ticket.pid <= 0 || !is_sane(ticket)) return {};
  const int fd =
      ::open(fmt::format("/proc/{}/fd/{}", ticket.pid, ticket.fd).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return {};
  struct stat info {};
  HostSharedArea area;
  area.ticket_ = ticket;
  area.ticket_.fd = -1;
  area.size_ = area_bytes(ticket);
  // Without the seal a worker could cut the file, and reading it would end this process.
  const int seals = fcntl(fd, F_GET_SEALS);
  void* base = MAP_FAILED;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == static_cast<off_t>(area.size_) && seals >= 0 &&
      (seals & F_SEAL_SHRINK) != 0) {
    base = mmap(nullptr, area.size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (base == MAP_FAILED) return {};
  area.base_ = static_cast<std::byte*>(base);
  if (*reinterpret_cast<const uint64_t*>(area.base_) != ticket.secret) return {};
  return area;
}

HostSharedArea::HostSharedArea(HostSharedArea&& other) noexcept
    : ticket_(std::exchange(other.ticket_, {})),
      base_(std::exchange(other.base_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

HostSharedArea& HostSharedArea::operator=(HostSharedArea&& other) noexcept {
  std::swap(ticket_, other.ticket_);
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  return *this;
}

HostSharedArea::~HostSharedArea() {
  if (base_ != nullptr) munmap(base_, size_);
  if (ticket_.fd >= 0) close(ticket_.fd);
}

std::optional<uint32_t> HostSharedArea::take(Side sender, size_t num_bytes) {
  if (base_ == nullptr || num_bytes == 0 || num_bytes > ticket_.slot_bytes) return std::nullopt;
  for (uint32_t number = 0; number < ticket_.num_slots; ++number) {
    auto flag = flag_at(base_, index_of(ticket_, sender, number));
    if (flag.load(std::memory_order_acquire) != 0) continue;
    flag.store(1, std::memory_order_relaxed);  // only the sending side takes
    return number;
  }
  return std::nullopt;
}

std::span<std::byte> HostSharedArea::slot(Side sender, uint32_t number, size_t num_bytes) const {
  if (base_ == nullptr || number >= ticket_.num_slots || num_bytes > ticket_.slot_bytes) return {};
  return {base_ + kPage + size_t{index_of(ticket_, sender, number)} * ticket_.slot_bytes, num_bytes};
}

void HostSharedArea::release(Side sender, uint32_t number) {
  if (base_ == nullptr || number >= ticket_.num_slots) return;
  flag_at(base_, index_of(ticket_, sender, number)).store(0, std::memory_order_release);
}

}  // namespace trireme::server
