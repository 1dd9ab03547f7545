// Names, bytes on the busiest link, and predictions of operations.
#include "trireme/measure/comm/operation.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::measure {
namespace {

constexpr Operation kAll[] = {Operation::kAllReduce, Operation::kReduceScatter, Operation::kAllGather,
                              Operation::kBroadcast, Operation::kAllToAll};

TEST(Operation, NamesGoBothWays) {
  for (const Operation operation : kAll) EXPECT_EQ(operation_named(name_of(operation)), operation);
  EXPECT_EQ(operation_named(" All_Gather "), Operation::kAllGather);
  try {
    operation_named("all-redcue");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean all-reduce?"), std::string::npos) << error.what();
  }
}

TEST(Operation, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::kAllToAll, 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::kBroadcast, 4), 1);
}

TEST(PredictOperation, ByMessages) {
  const TransportCost cost{"tcp", 4, {10, 1e-3}, 1e-4, 5, 2e-4};
  const auto predict = [&](Operation operation, uint64_t bytes) {
    return predict_operation_us(operation, Algorithm::kAuto, 4, bytes, cost);
  };
  EXPECT_DOUBLE_EQ(predict(Operation::kReduceScatter, 4000), 10 + 3000 * (1e-3 + 1e-4));
  EXPECT_DOUBLE_EQ(predict(Operation::kAllGather, 4000), 10 + 3000 * 1e-3 + 1000 * 2e-4);
  EXPECT_DOUBLE_EQ(predict(Operation::kBroadcast, 4000), 2 * (10 + 4000 * 1e-3)) << "two rounds of a tree";
  EXPECT_DOUBLE_EQ(predict(Operation::kBroadcast, 4'000'000), 2 * (10 + 3'000'000 * 1e-3)) << "scatter, all-gather";
  EXPECT_EQ(method_of(Operation::kBroadcast, 4, 4000, "tcp"), "tree");
  EXPECT_EQ(method_of(Operation::kBroadcast, 4, 4'000'000, "tcp"), "scatter-gather");
  EXPECT_EQ(method_of(Operation::kBroadcast, 2, 4'000'000, "tcp"), "tree");
  EXPECT_EQ(method_of(Operation::kAllToAll, 4, 4000, "tcp"), "direct");
}

TEST(PredictOperation, InSharedMemoryAndAlone) {
  const TransportCost cost{"shared memory", 4, {10, 1e-3}, 1e-4, 5, 2e-4};
  EXPECT_DOUBLE_EQ(predict_operation_us(Operation::kBroadcast, Algorithm::kAuto, 4, 1000, cost), 10 + 1000 * 2e-4);
  EXPECT_DOUBLE_EQ(predict_operation_us(Operation::kReduceScatter, Algorithm::kAuto, 4, 1000, cost), 10 + 750 * 1e-4);
  EXPECT_EQ(method_of(Operation::kBroadcast, 4, 1000, "threads"), "in-place");
  for (const Operation operation : kAll) {
    EXPECT_EQ(predict_operation_us(operation, Algorithm::kRing, 1, 1000, cost), 0);
  }
}

}  // namespace
}  // namespace trireme::measure
