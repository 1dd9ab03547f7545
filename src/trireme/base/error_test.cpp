#include "trireme/base/error.h"

#include <gtest/gtest.h>

#include "trireme/base/json.h"

namespace trireme {
namespace {

TEST(Error, HasCauseCureAndPlace) {
  const UsageError error("train.steps = 0 is no training", "set it to 1 or more", {.step = 3, .key = "train.steps"});
  EXPECT_STREQ(error.what(), "train.steps = 0 is no training\n  set it to 1 or more");
  EXPECT_EQ(cause_of(error), "train.steps = 0 is no training");
  EXPECT_EQ(cure_of(error), "set it to 1 or more");
  EXPECT_EQ(error.where().key, "train.steps");
  EXPECT_EQ(cure_of(Error("only a cause")), "");
  EXPECT_EQ(completed(error.where(), {.rank = 2, .key = "other"}), (Where{.rank = 2, .step = 3, .key = "train.steps"}));
}

TEST(Error, IsAnObjectWithTheFieldsThatAreKnown) {
  const Error error("worker 1 is gone", "start it again", {.peer = 1, .micro_batch = 2, .instruction = "Send 2"});
  const Json json = failure_json(error);
  EXPECT_EQ(json, (Json{{"error", "worker 1 is gone"},
                        {"cure", "start it again"},
                        {"peer", 1},
                        {"micro_batch", 2},
                        {"instruction", "Send 2"}}));
  const Error again = failure_from_text(failure_to_text(error));
  EXPECT_STREQ(again.what(), error.what());
  EXPECT_EQ(again.where(), error.where());
  EXPECT_EQ(failure_json(std::runtime_error("no field is known")), (Json{{"error", "no field is known"}}));
}

}  // namespace
}  // namespace trireme
