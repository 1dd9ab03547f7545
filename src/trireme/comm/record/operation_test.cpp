#include "trireme/comm/record/operation.h"

#include <gtest/gtest.h>

#include <set>

namespace trireme {
namespace {

OperationDigest all_reduce() {
  OperationDigest digest;
  digest.kind = OperationKind::kAllReduce;
  digest.type = DataType::kFloat;
  digest.op = ReduceOp::kSum;
  digest.count = 1024;
  digest.sequence = 17;
  return digest;
}

TEST(Operation, SaysWhatItIs) {
  EXPECT_EQ(describe(all_reduce()), "all-reduce #17 (sum of 1024 float)");
  OperationDigest digest = all_reduce();
  digest.algorithm = Algorithm::kRing;
  EXPECT_EQ(describe(digest), "all-reduce #17 (sum of 1024 float, ring)");
  digest = {};
  digest.kind = OperationKind::kBroadcast;
  digest.type = DataType::kInt64;
  digest.count = 3;
  digest.root = 2;
  digest.sequence = 4;
  EXPECT_EQ(describe(digest), "broadcast #4 (3 int64, root 2)");
  digest.kind = OperationKind::kSend;
  digest.sequence = 0;
  EXPECT_EQ(describe(digest), "send (3 int64, tag 2)");
  digest = {};
  digest.kind = OperationKind::kBarrier;
  digest.sequence = 9;
  EXPECT_EQ(describe(digest), "barrier #9");
}

TEST(Operation, NamesDiffer) {
  std::set<std::string_view> names;
  for (int kind = 0; kind <= static_cast<int>(OperationKind::kAllToAllV); ++kind) {
    EXPECT_TRUE(names.insert(name_of(static_cast<OperationKind>(kind))).second);
  }
  EXPECT_FALSE(names.contains("unknown operation"));
}

TEST(Fingerprint, EveryFieldCounts) {
  std::set<uint64_t> seen{fingerprint(all_reduce(), 1)};
  const auto expect_new = [&](OperationDigest digest, uint64_t group = 1, uint64_t extra = 0) {
    EXPECT_TRUE(seen.insert(fingerprint(digest, group, extra)).second) << describe(digest);
  };
  OperationDigest digest = all_reduce();
  digest.kind = OperationKind::kReduce;
  expect_new(digest);
  digest = all_reduce();
  digest.type = DataType::kInt32;
  expect_new(digest);
  digest = all_reduce();
  digest.op = ReduceOp::kMax;
  expect_new(digest);
  digest = all_reduce();
  digest.algorithm = Algorithm::kTree;
  expect_new(digest);
  for (const int root : {0, 1, 1 << 30}) {
    digest = all_reduce();
    digest.root = root;
    expect_new(digest);
  }
  for (const uint64_t count : {0ull, 1023ull, 1025ull, 1ull << 40}) {
    digest = all_reduce();
    digest.count = count;
    expect_new(digest);
  }
  digest = all_reduce();
  digest.sequence = 18;
  expect_new(digest);
  expect_new(all_reduce(), 2);
  expect_new(all_reduce(), 1, 1);
  EXPECT_EQ(fingerprint(all_reduce(), 1), fingerprint(all_reduce(), 1));
}

TEST(Fingerprint, NeighboursDoNotMeet) {
  // Counts and sequence numbers that follow each other are what ranks disagree about in practice.
  std::set<uint64_t> seen;
  OperationDigest digest = all_reduce();
  for (digest.count = 0; digest.count < 300; ++digest.count) {
    for (digest.sequence = 0; digest.sequence < 300; ++digest.sequence) {
      ASSERT_TRUE(seen.insert(fingerprint(digest, 1)).second);
    }
  }
}

}  // namespace
}  // namespace trireme
