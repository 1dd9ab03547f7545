#include "trireme/comm/flight_recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "trireme/base/json.h"

namespace trireme {
namespace {

OperationDigest digest_of(uint64_t sequence) {
  OperationDigest digest;
  digest.kind = OperationKind::kAllReduce;
  digest.type = DataType::kBFloat16;
  digest.op = ReduceOp::kMax;
  digest.algorithm = Algorithm::kRing;
  digest.root = -1;
  digest.count = 1000 + sequence;
  digest.sequence = sequence;
  return digest;
}

Clock::time_point at(int64_t nanoseconds) { return Clock::time_point(std::chrono::nanoseconds(nanoseconds)); }

TEST(FlightRecorder, KeepsEveryFieldOfARecord) {
  FlightRecorder recorder;
  EXPECT_TRUE(recorder.records().empty());
  recorder.begin(digest_of(1), at(100));
  ASSERT_EQ(recorder.records().size(), 1u);
  EXPECT_EQ(recorder.records()[0].digest, digest_of(1));
  EXPECT_EQ(recorder.records()[0].started_ns, 100);
  EXPECT_EQ(recorder.records()[0].ended_ns, 0);
  recorder.end(at(250));
  EXPECT_EQ(recorder.records()[0].ended_ns, 250);
  EXPECT_FALSE(recorder.records()[0].failed);

  OperationDigest broadcast = digest_of(2);
  broadcast.root = 3;
  recorder.begin(broadcast, at(300));
  recorder.end(at(400), true);
  EXPECT_EQ(recorder.records()[1].digest, broadcast);
  EXPECT_EQ(recorder.records()[1].ended_ns, 400);
  EXPECT_TRUE(recorder.records()[1].failed);
}

TEST(FlightRecorder, ForgetsTheOldest) {
  FlightRecorder recorder;
  const uint64_t count = FlightRecorder::kCapacity + 100;
  for (uint64_t i = 1; i <= count; ++i) {
    recorder.begin(digest_of(i), at(static_cast<int64_t>(i)));
    recorder.end(at(static_cast<int64_t>(i)));
  }
  const auto records = recorder.records();
  ASSERT_EQ(records.size(), FlightRecorder::kCapacity);
  for (size_t i = 0; i < records.size(); ++i) EXPECT_EQ(records[i].digest.sequence, 101 + i);
}

TEST(FlightRecorder, WritesJsonThatCanBeRead) {
  FlightRecorder recorder;
  EXPECT_TRUE(nlohmann::json::parse(recorder.to_json()).empty());
  recorder.begin(digest_of(1), at(10));
  recorder.end(at(20));
  recorder.begin(digest_of(2), at(30));
  recorder.end(at(40), true);
  recorder.begin(digest_of(3), at(50));
  const auto json = nlohmann::json::parse(recorder.to_json());
  ASSERT_EQ(json.size(), 3u);
  EXPECT_EQ(json[0]["operation"], "all-reduce");
  EXPECT_EQ(json[0]["type"], name_of(DataType::kBFloat16));
  EXPECT_EQ(json[0]["count"], 1001);
  EXPECT_EQ(json[0]["state"], "done");
  EXPECT_EQ(json[1]["state"], "failed");
  EXPECT_EQ(json[1]["ended_ns"], 40);
  EXPECT_EQ(json[2]["state"], "under way");
  EXPECT_EQ(json[2]["sequence"], 3);
}

TEST(FlightRecorder, MayBeReadWhileItIsWritten) {
  FlightRecorder recorder;
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t i = 1; !stop; ++i) {
      recorder.begin(digest_of(i), at(static_cast<int64_t>(i)));
      recorder.end(at(static_cast<int64_t>(i)));
    }
  });
  for (int i = 0; i < 50; ++i) EXPECT_NO_THROW(nlohmann::json::parse(recorder.to_json()));
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace trireme
