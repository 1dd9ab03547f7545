// Bytes from outside: frames, member tables, cluster files and variables that nobody sane would write. Each is refused
// with an error of ours or understood; none costs more memory than it has bytes.
// ctest: sanitize
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>

#include "support/process_group.h"
#include "support/quiet_control.h"
#include "trireme/base/fault.h"
#include "trireme/comm/algorithms/tuner.h"
#include "trireme/comm/control/control_protocol.h"
#include "trireme/comm/control/launch_environment.h"
#include "trireme/comm/transport/endpoint.h"

namespace {

std::atomic<size_t> largest_allocation{0};

}  // namespace

// Replaced to see what the bytes make us allocate.
[[gnu::noinline]] void* operator new(size_t size) {
  size_t seen = largest_allocation.load(std::memory_order_relaxed);
  while (size > seen && !largest_allocation.compare_exchange_weak(seen, size)) {
  }
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace trireme {
namespace {

using Random = std::mt19937_64;

/// What a hostile peer sends: frames that are right, wrong, huge or noise, in pieces of any size.
class HostileLink : public Link {
 public:
  HostileLink(uint64_t seed, const FrameHeader& expected) : random_(seed), expected_(expected) {}

  size_t write_some(ConstBytes data) override { return random_() % (data.size() + 1); }
  size_t read_some(Bytes data) override {
    if (random_() % 8 == 0) return 0;
    if (bytes_.size() == at_) next_frame();
    const size_t n = std::min({data.size(), bytes_.size() - at_, size_t{1} + random_() % 5000});
    std::memcpy(data.data(), bytes_.data() + at_, n);
    at_ += n;
    total_ += n;
    return n;
  }
  size_t total() const { return total_; }

 private:
  void next_frame() {
    FrameHeader header = expected_;
    const auto noise = [&](void* to, size_t size) {
      for (size_t i = 0; i < size; ++i) static_cast<unsigned char*>(to)[i] = static_cast<unsigned char>(random_());
    };
    switch (random_() % 8) {
      case 0:
        noise(&header, sizeof header);
        break;
      case 1:
        noise(&header.length, 8);
        break;
      case 2:
        noise(&header.digest, sizeof header.digest);
        break;
      case 3:
        header.fingerprint = random_();
        break;
      case 4:
        header.length = random_() % 3 == 0 ? FrameHeader::kMaxLength : uint64_t{1} << random_() % 41;
        break;
      default:
        break;
    }
    // Often in a lane or with a tag that nobody waits for: then the frame is kept aside.
    if (random_() % 2 == 0) header.lane = static_cast<uint16_t>(random_() % 70);
    if (random_() % 3 == 0) header.tag = static_cast<uint32_t>(random_() % 3);
    const size_t payload = static_cast<size_t>(std::min<uint64_t>(header.length, random_() % 40'000));
    bytes_.resize(sizeof header + payload);
    std::memcpy(bytes_.data(), &header, sizeof header);
    at_ = 0;
  }

  Random random_;
  FrameHeader expected_;
  std::vector<std::byte> bytes_;
  size_t at_ = 0, total_ = 0;
};

TEST(Bytes, OfFrames) {
  constexpr int kTrials = 4000;
  int broken = 0, mismatched = 0, received = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    Random random(test_seed() + static_cast<uint64_t>(trial));
    FrameHeader expected;
    expected.lane = random() % 2 == 0 ? 0 : 64;
    expected.digest.kind = OperationKind::kAllReduce;
    expected.digest.sequence = expected.lane == 0 ? 7 : 0;
    expected.fingerprint = fingerprint(expected.digest, 1);
    HostileLink* link = nullptr;
    Endpoint endpoint(
        0, 2,
        [&](int) {
          auto made = std::make_unique<HostileLink>(random(), expected);
          link = made.get();
          return made;
        },
        nullptr);
    std::vector<std::byte> first(random() % 3000), second(random() % 3000);
    expected.length = first.size();
    largest_allocation = 0;
    try {
      const auto ticket = endpoint.start_recv(1, expected, first);
      const auto other = endpoint.start_recv(1, expected, second);
      for (int i = 0; i < 300 && !other->done; ++i) endpoint.progress();
      received += ticket->done;
    } catch (const LinkBroken& error) {
      ++broken;
      EXPECT_EQ(error.peer, 1);
      EXPECT_FALSE(error.reason.empty());
    } catch (const OperationMismatch& mismatch) {
      ++mismatched;
      EXPECT_EQ(mismatch.peer, 1);
      EXPECT_FALSE(describe(mismatch.theirs).empty());
    }
    // Twice what has come, and what an endpoint always needs.
    EXPECT_LT(largest_allocation.load(), 2 * link->total() + 100'000) << "trial " << trial;
  }
  fmt::print("{} hostile peers: {} links given up, {} mismatches, {} messages that were right\n", kTrials, broken,
             mismatched, received);
  EXPECT_GT(broken, kTrials / 20);
  EXPECT_GT(mismatched, kTrials / 20);
  EXPECT_GT(received, kTrials / 100);
}

TEST(Bytes, OfADigestAreAlwaysDescribed) {
  Random random(test_seed());
  for (int trial = 0; trial < 10'000; ++trial) {
    OperationDigest digest;
    for (size_t i = 0; i < sizeof digest; ++i)
      reinterpret_cast<unsigned char*>(&digest)[i] = static_cast<unsigned char>(random());
    EXPECT_LT(describe(digest).size(), 300u);
  }
}

/// Some bytes changed, taken out, doubled or put in.
std::string damaged(Random& random, std::string text) {
  for (uint64_t n = 1 + random() % 4; n > 0 && !text.empty(); --n) {
    const size_t at = random() % text.size();
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 10);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 30));
        break;
      case 3:
        text.insert(at, std::to_string(random()));
        break;
      case 4:
        text.insert(at, std::vector<std::string>{"-", "1e999", "nan", "inf", "null", "\"", "{", "[[[", "\n",
                                                 "99999999999999999999", "\0x", "(x999999999)", ":", "=", ",",
                                                 ";"}[random() % 16]);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

template <typename Body>
bool survives(Body&& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    return false;
  }
}

void use(const Tuner& tuner) {
  for (const bool one_host : {false, true}) {
    for (const size_t bytes : {size_t{0}, size_t{4096}, size_t{1} << 40}) {
      const Tuner::Situation situation{5, one_host, one_host ? 5 : 2, true, true};
      EXPECT_TRUE(tuner.possible(tuner.choose(bytes, situation), situation));
    }
  }
}

TEST(Bytes, OfATableOfCosts) {
  Random random(test_seed());
  int understood = 0;
  const std::string right = Tuner().serialize();
  for (int trial = 0; trial < 5000; ++trial) {
    largest_allocation = 0;
    understood += survives([&] { use(Tuner::parse(damaged(random, right))); });
    EXPECT_LT(largest_allocation.load(), size_t{100'000});
  }
  fmt::print("5000 damaged tables: {} understood, the rest refused\n", understood);
}

TEST(Bytes, OfAClusterFile) {
  Random random(test_seed());
  int understood = 0;
  const std::string right = ClusterFile::defaults().to_json();
  for (int trial = 0; trial < 3000; ++trial) {
    understood += survives([&] {
      const ClusterFile file = ClusterFile::from_json(damaged(random, right), "cluster.json");
      use(Tuner(file, "tcp"));
      file.to_json();
    });
  }
  fmt::print("3000 damaged cluster files: {} understood, the rest refused\n", understood);
  EXPECT_FALSE(survives([] { ClusterFile::from_json(std::string(1'000'000, '['), "deep.json"); }));
  EXPECT_FALSE(survives([] { ClusterFile::from_json(std::string(1'000'000, '\0'), "empty.json"); }));
}

TEST(Bytes, OfMembers) {
  Random random(test_seed());
  Member member;
  member.rank = 3;
  member.host_name = "node-a";
  member.host_id = "id";
  member.address = "127.0.0.1";
  member.blob = "123 4 5678\n" + Tuner().serialize();
  const auto as_text = [](std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const auto as_bytes = [](const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); };
  const auto without_header = [](std::span<const std::byte> frame) { return frame.subspan(control::kHeaderBytes); };
  const std::string registration = as_text(without_header(control::encode_register(member)));
  const std::string table = as_text(without_header(*control::encode_table({member, member, member})));
  const std::string waiting = as_text(without_header(*control::encode(control::Waiting{2, {1, 2}})));
  const std::string failure = as_text(without_header(*control::encode(Failure{1, "out of coffee"})));
  const std::string answer = as_text(without_header(*control::encode_answer(1, {RankStatus{}, RankStatus{}})));
  int understood = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    largest_allocation = 0;
    understood += survives([&] { control::decode_register(as_bytes(damaged(random, registration))); });
    survives([&] {
      control::TableReader reader;
      if (reader.add(as_bytes(damaged(random, table)))) reader.members();
    });
    survives([&] { control::decode_waiting(as_bytes(damaged(random, waiting))); });
    survives([&] { control::decode_failure(as_bytes(damaged(random, failure))); });
    survives([&] {
      std::vector<RankStatus> ranks;
      control::decode_answer(as_bytes(damaged(random, answer)), ranks);
    });
    // The table makes room for the number of members that it states, at most the largest world.
    EXPECT_LT(largest_allocation.load(), control::kMaxWorldSize * sizeof(Member) + 100'000);
  }
  fmt::print("3000 damaged registrations: {} understood, the rest refused\n", understood);
}

TEST(Bytes, OfAFaultRule) {
  Random random(test_seed());
  int understood = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    const std::string text =
        damaged(random, "rank=2,step=17,point=a.b,kind=delay:5,count=3;point=c,kind=errno:ENOSPC;point=d,kind=throw");
    understood += survives([&] { set_faults(text); });
  }
  set_faults("");
  fmt::print("5000 damaged fault rules: {} understood, the rest refused\n", understood);
}

TEST(Bytes, OfALaunchersVariables) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const std::vector<Variables> launchers = {
      {{"TRIREME_RANK", "1"}, {"TRIREME_WORLD_SIZE", "4"}, {"TRIREME_MASTER", "127.0.0.1:2900"}},
      {{"RANK", "1"},
       {"WORLD_SIZE", "4"},
       {"LOCAL_RANK", "1"},
       {"LOCAL_WORLD_SIZE", "4"},
       {"MASTER_ADDR", "127.0.0.1"},
       {"MASTER_PORT", "2900"}},
      {{"SLURM_PROCID", "1"},
       {"SLURM_STEP_ID", "0"},
       {"SLURM_NTASKS", "8"},
       {"SLURM_JOB_ID", "17"},
       {"SLURM_STEP_TASKS_PER_NODE", "4(x2),1"},
       {"SLURM_STEP_NODELIST", "node[01-04,07],x"},
       {"TRIREME_TOKEN", "t"}},
  };
  Random random(test_seed());
  int understood = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    Variables variables = launchers[random() % launchers.size()];
    for (auto& [name, value] : variables) {
      if (random() % 3 == 0) value = damaged(random, value);
    }
    largest_allocation = 0;
    understood += survives([&] {
      const LaunchEnvironment environment = read_launch_environment(variables);
      EXPECT_GE(environment.rank, 0);
      EXPECT_LT(environment.rank, environment.size);
      EXPECT_LT(environment.local_rank, environment.local_size);
    });
    EXPECT_LT(largest_allocation.load(), size_t{1} << 20);
  }
  fmt::print("6000 damaged environments: {} understood, the rest refused\n", understood);
}

}  // namespace
}  // namespace trireme
