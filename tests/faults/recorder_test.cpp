// The flight recorder: after a failure, or on request, each rank shows what it was doing.
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "faults/kill_trial.h"
#include "support/paths.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

const std::string kLoop = program_path("loop_program");

struct Flight {
  ScratchFolder folder;
  RankProcesses::Options options;

  explicit Flight(Wires wires = Wires::kSharedMemory) {
    options.size = 3;
    options.wires = wires;
    options.environment["TRIREME_FLIGHT_DIR"] = folder.path();
  }
  json read(const std::string& name) const {
    std::ifstream file(folder.path() / name);
    EXPECT_TRUE(file.good()) << name << " was not written";
    return file.good() ? json::parse(file) : json();
  }
};

/// Numbers grow by one, times by anything, and only the last one is of this state.
void check_records(const json& records, const std::string& last_state) {
  ASSERT_TRUE(records.is_array());
  ASSERT_GE(records.size(), 2u);
  for (size_t i = 0; i < records.size(); ++i) {
    const json& record = records[i];
    EXPECT_EQ(record.at("state"), i + 1 < records.size() ? "done" : last_state) << record;
    if (i > 0 && record.at("sequence") != 0) {  // a message between two ranks has no number
      EXPECT_EQ(record.at("sequence").get<uint64_t>(), records[i - 1].at("sequence").get<uint64_t>() + 1);
      EXPECT_GE(record.at("started_ns").get<int64_t>(), records[i - 1].at("started_ns").get<int64_t>());
    }
    EXPECT_NE(record.at("operation"), "nothing");
  }
}

TEST(Recorder, IsWrittenByEverySurvivorOfAKill) {
  for (const Wires wires : {Wires::kSharedMemory, Wires::kTcp}) {
    Flight flight(wires);
    RankProcesses ranks({kLoop}, flight.options);
    ASSERT_TRUE(ranks.wait_for("working", 20s));
    ranks[1].signal(SIGKILL);
    ranks.wait(10s);
    for (const int rank : {0, 2}) {
      const json dump = flight.read(fmt::format("flight-rank{}-1.json", rank));
      EXPECT_EQ(dump.at("rank"), rank);
      EXPECT_EQ(dump.at("group"), "world");
      EXPECT_EQ(dump.at("culprit"), 1);
      EXPECT_TRUE(contains(dump.at("failure"), "rank 1 (")) << dump.at("failure");
      check_records(dump.at("records"), "failed");
    }
  }
}

TEST(Recorder, MarksTheOperationThatFailed) {
  Flight flight;
  flight.options.environment["TRIREME_FAULT"] = "rank=2,point=heap.commit,kind=errno:ENOSPC,count=2";
  RankProcesses ranks({kLoop}, flight.options);
  ranks.wait(10s);
  for (const int rank : {0, 1, 2}) {
    const json dump = flight.read(fmt::format("flight-rank{}-1.json", rank));
    EXPECT_EQ(dump.at("culprit"), 2);
    EXPECT_TRUE(contains(dump.at("failure"), "No space left on device")) << dump.at("failure");
    check_records(dump.at("records"), "failed");
  }
}

TEST(Recorder, IsWrittenOnRequestWhileARankIsStuck) {
  Flight flight;
  RankProcesses ranks({kLoop, "stuck=1", "split=1"}, flight.options);
  ASSERT_TRUE(ranks.wait_for("working", 20s));
  std::this_thread::sleep_for(50ms);  // for the others to get to where they wait for rank 1
  for (int rank = 0; rank < 3; ++rank) ranks[rank].signal(SIGUSR2);
  for (int rank = 0; rank < 3; ++rank) {
    const auto path = flight.folder.path() / fmt::format("flight-rank{}.json", rank);
    json dump;
    for (const Deadline deadline = Deadline::after(2s); !deadline.expired() && dump.is_null();) {
      std::this_thread::sleep_for(2ms);
      std::ifstream file(path);
      dump = file.good() ? json::parse(file, nullptr, false) : json();
      if (dump.is_discarded()) dump = json();  // half-written
    }
    ASSERT_FALSE(dump.is_null()) << "rank " << rank << " has not written";
    EXPECT_EQ(dump.at("rank"), rank);
    EXPECT_GE(dump.at("groups").size(), 2u);  // the world and a half of it
    check_records(dump.at("groups").at("world"), rank == 1 ? "done" : "under way");
  }
}

}  // namespace
}  // namespace trireme
