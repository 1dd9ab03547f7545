#include "trireme/comm/host/address_space.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/comm/host/board.h"

namespace trireme {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

bool is_zero(const void* memory, size_t num_bytes) {
  const auto* bytes = static_cast<const unsigned char*>(memory);
  return std::all_of(bytes, bytes + num_bytes, [](unsigned char byte) { return byte == 0; });
}

size_t open_files() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

template <typename Space>
std::unique_ptr<AddressSpace> make_space();
template <>
std::unique_ptr<AddressSpace> make_space<HostSharedHeap>() {
  return std::make_unique<HostSharedHeap>(4, 17);
}
template <>
std::unique_ptr<AddressSpace> make_space<ThreadSpace>() {
  return std::make_unique<ThreadSpace>(std::make_shared<ThreadSpace::FixedAreas>(4));
}

template <typename Space>
class AnySpace : public testing::Test {
 protected:
  std::unique_ptr<AddressSpace> space = make_space<Space>();
};
using Spaces = testing::Types<HostSharedHeap, ThreadSpace>;
TYPED_TEST_SUITE(AnySpace, Spaces);

TYPED_TEST(AnySpace, GivesZeroedAlignedMemoryThatDoesNotOverlap) {
  std::map<std::byte*, size_t> given;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{4096}, size_t{5000}, 100 * size_t{1000}, kMiB - 1,
                            kMiB, 3 * kMiB + 5, size_t{200}}) {
    auto* memory = static_cast<std::byte*>(this->space->allocate(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    EXPECT_TRUE(is_zero(memory, size)) << size;
    std::memset(memory, 0xEE, size);
    given[memory] = size;
  }
  const std::byte* end = nullptr;
  for (const auto& [memory, size] : given) {
    EXPECT_LE(end, memory);  // null at first
    end = memory + size;
  }
  for (const auto& [memory, size] : given) this->space->release(memory);
}

TYPED_TEST(AnySpace, MemoryIsZeroAgainWhenItIsUsedAgain) {
  // Freed in pieces of one kind of size, taken in pieces of another.
  for (const size_t freed : {size_t{100}, 200 * size_t{1024}, kMiB / 2, 2 * kMiB}) {
    for (const size_t taken : {size_t{100}, 300 * size_t{1024}, kMiB - 1, kMiB, 3 * kMiB}) {
      std::vector<void*> pieces;
      for (size_t total = 0; total < 4 * kMiB && pieces.size() < 100; total += freed) {
        pieces.push_back(this->space->allocate(freed));
        std::memset(pieces.back(), 0xEE, freed);
      }
      for (void* piece : pieces) this->space->release(piece);
      void* memory = this->space->allocate(taken);
      EXPECT_TRUE(is_zero(memory, taken)) << "freed in pieces of " << freed << ", taken " << taken;
      std::memset(memory, 0xDD, taken);
      this->space->release(memory);
    }
  }
}

TYPED_TEST(AnySpace, PlacesLeadBack) {
  auto* memory = static_cast<std::byte*>(this->space->allocate(1000));
  const auto place = this->space->place_of(memory + 8, 100);
  ASSERT_TRUE(place.has_value());
  if (auto* heap = dynamic_cast<HostSharedHeap*>(this->space.get())) heap->set_peers({std::nullopt}, 0);
  EXPECT_EQ(this->space->at(0, *place), memory + 8);
  this->space->release(memory);
}

TYPED_TEST(AnySpace, FixedAreasAreZeroAndApart) {
  if (auto* heap = dynamic_cast<HostSharedHeap*>(this->space.get()))
    heap->set_peers(std::vector<std::optional<HostSharedHeap::Ticket>>(4), 2);
  std::byte* own = this->space->fixed_area(2);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(own) % 64, 0u);
  EXPECT_TRUE(is_zero(own, fixed_area_bytes(4)));
  std::memset(own, 0xEE, fixed_area_bytes(4));
  auto* memory = static_cast<std::byte*>(this->space->allocate(100));
  EXPECT_TRUE(memory + 100 <= own || memory >= own + fixed_area_bytes(4));
  this->space->release(memory);
}

TYPED_TEST(AnySpace, ThreadsMayAllocateAtOnce) {
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) {
          const size_t size = static_cast<size_t>(i * 37 % 5000 + 1);
          auto* memory = static_cast<unsigned char*>(this->space->allocate(size));
          std::memset(memory, t + 1, size);
          std::this_thread::yield();
          if (std::count(memory, memory + size, t + 1) != static_cast<std::ptrdiff_t>(size)) ++wrong;
          this->space->release(memory);
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

TYPED_TEST(AnySpace, RefusesWhatNoMachineHas) {
  // Sanitizers end a process that asks the system for much more than there can be.
  if (std::getenv("TRIREME_SANITIZED") == nullptr) {
    EXPECT_THROW(this->space->allocate(size_t{1} << 60), Error);
  }
  EXPECT_THROW(this->space->allocate(SIZE_MAX), Error);
  void* memory = this->space->allocate(100);  // and goes on
  this->space->release(memory);
}

TEST(HostSharedHeap, ReadsAndWritesTheMemoryOfAPeer) {
  HostSharedHeap a(2, 11), b(2, 22);
  const std::vector<std::optional<HostSharedHeap::Ticket>> tickets{a.ticket(), b.ticket()};
  a.set_peers(tickets, 0);
  b.set_peers(tickets, 1);
  auto* mine = static_cast<int*>(a.allocate(4 * kMiB));
  mine[kMiB - 1] = 42;
  auto* seen = reinterpret_cast<int*>(b.at(0, *a.place_of(mine, 4 * kMiB)));
  EXPECT_NE(seen, mine);
  EXPECT_EQ(seen[kMiB - 1], 42);
  seen[0] = 7;
  EXPECT_EQ(mine[0], 7);
  // Memory that the peer took after it was first mapped is there as well.
  auto* later = static_cast<int*>(a.allocate(16 * kMiB));
  later[0] = 5;
  EXPECT_EQ(*reinterpret_cast<int*>(b.at(0, *a.place_of(later, 4))), 5);
  // The fixed area of a peer, and what is not one's own.
  a.fixed_area(0)[3] = std::byte{9};
  EXPECT_EQ(b.fixed_area(0)[3], std::byte{9});
  EXPECT_FALSE(b.place_of(mine, 4).has_value());
  int local = 0;
  EXPECT_FALSE(b.place_of(&local, 4).has_value());
}

TEST(HostSharedHeap, ReachesAnotherProcess) {
  HostSharedHeap heap(2, 11);
  const HostSharedHeap::Ticket ticket = heap.ticket();
  auto* mine = static_cast<int*>(heap.allocate(100));
  const auto place = *heap.place_of(mine, 4);
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      HostSharedHeap other(2, 22);
      other.set_peers({ticket, other.ticket()}, 1);
      *reinterpret_cast<int*>(other.at(0, place)) = 4711;
      code = 0;
    } catch (...) {
    }
    _exit(code);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(*mine, 4711);
}

TEST(HostSharedHeap, DoesNotMistakeAnotherForThePeer) {
  HostSharedHeap a(2, 11), b(2, 22);
  HostSharedHeap::Ticket wrong = a.ticket();
  wrong.secret = 12;
  b.set_peers({wrong, b.ticket()}, 1);
  EXPECT_THROW(b.at(0, 4096), PeerUnreachable);
  HostSharedHeap c(3, 33);
  HostSharedHeap::Ticket nowhere = a.ticket();
  nowhere.fd = 999'999;
  c.set_peers({nowhere, std::nullopt, c.ticket()}, 2);
  EXPECT_THROW(c.at(0, 4096), PeerUnreachable);
  EXPECT_THROW(c.at(1, 4096), Error);  // on another host
}

TEST(HostSharedHeap, SaysWhatToDoWhenThereIsNoMemory) {
  HostSharedHeap heap(2, 11);
  set_faults("point=heap.commit,kind=errno:ENOSPC");
  try {
    heap.allocate(8 * kMiB);
    ADD_FAILURE();
  } catch (const SystemError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("8.0 MiB of shared memory"), std::string::npos) << text;
    EXPECT_NE(text.find("TRIREME_TRANSPORT=tcp"), std::string::npos) << text;
  }
  set_faults("");
  void* memory = heap.allocate(8 * kMiB);
  EXPECT_TRUE(is_zero(memory, 8 * kMiB));
}

TEST(HostSharedHeap, GivesLargeMemoryBackToTheMachine) {
  const auto resident = [] {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("RssShmem:")) return std::stoull(line.substr(9)) * 1024;
    }
    return 0ull;
  };
  HostSharedHeap heap(2, 11);
  const size_t before = resident();
  for (int i = 0; i < 20; ++i) {
    void* memory = heap.allocate(16 * kMiB);
    std::memset(memory, 1, 16 * kMiB);
    heap.release(memory);
  }
  EXPECT_LT(resident(), before + 20 * kMiB);
}

TEST(HostSharedHeap, LeavesNothingOpen) {
  const size_t before = open_files();
  for (int i = 0; i < 10; ++i) {
    HostSharedHeap a(2, 11), b(2, 22);
    b.set_peers({a.ticket(), b.ticket()}, 1);
    b.at(0, 4096);
  }
  EXPECT_EQ(open_files(), before);
}

TEST(FixedArea, HoldsTheBoardAndTheMailbox) {
  for (const int size : {1, 2, 3, 100, 1000}) {
    EXPECT_GE(fixed_area_bytes(size), Board::num_bytes(size) + Mailbox::num_bytes(size));
    EXPECT_EQ(Board::num_bytes(size) % alignof(Mailbox), 0u);
  }
}

}  // namespace
}  // namespace trireme
