#include "trireme/shape/layout.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/program/check/check.h"
#include "trireme/shape/model_shape.h"

namespace trireme {
namespace {

Layout layout_of(int64_t dp, int64_t tp, int64_t pp, int64_t global_batch = 16) {
  Layout layout;
  layout.dp = dp;
  layout.tp = tp;
  layout.pp = pp;
  layout.global_batch = global_batch;
  return layout;
}

std::string refusal(const Layout& layout) {
  try {
    layout.check();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST(Layout, SharesOutTheBatch) {
  Layout layout = layout_of(2, 1, 1, 48);
  layout.micro_batch = 2;
  EXPECT_EQ(layout.micro_batches(), 24);
  EXPECT_EQ(layout.accumulation(), 12);
  EXPECT_EQ(layout.num_leaves(), 8);
  EXPECT_TRUE(layout.has_leaves());
  layout.batch_parts = {3, 1};
  EXPECT_EQ(layout.accumulation(), 18) << "of the replica that has most";
  EXPECT_EQ(layout.leaves_of_replicas(), (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(refusal(layout), "none");
  layout.batch_parts = {3, 2};
  EXPECT_NE(refusal(layout).find("2 shares of 5 parts"), std::string::npos) << refusal(layout);
  layout.batch_parts = {};
  layout.dp = 16;
  EXPECT_FALSE(layout.has_leaves());
  EXPECT_NE(refusal(layout).find("multiple of 32"), std::string::npos) << refusal(layout);
}

TEST(Layout, SaysWhereWorkersStand) {
  const Layout alike = layout_of(2, 2, 3);
  EXPECT_EQ(alike.num_devices(), 12);
  EXPECT_EQ(alike.first_worker(2), 4);
  EXPECT_EQ(alike.pipeline_rank_of(5), 2);
  EXPECT_EQ(alike.pipeline_rank_of(6), 0);
  Layout uneven = layout_of(6, 1, 2, 12);
  uneven.stages = {{2, 1}, {3, 2}};
  EXPECT_TRUE(uneven.has_uneven_stages());
  EXPECT_EQ(uneven.shapes_text(), "2x1,3x2");
  EXPECT_EQ(uneven.num_devices(), 8);
  EXPECT_EQ(uneven.first_worker(1), 2);
  EXPECT_EQ(uneven.pipeline_rank_of(1), 0);
  EXPECT_EQ(uneven.pipeline_rank_of(7), 1);
  EXPECT_EQ(uneven.of_stage(1).tp, 2);
  EXPECT_EQ(uneven.of_stage(1).lanes, 2);
  EXPECT_EQ(refusal(uneven), "none");
  uneven.split = {{0, 4}};
  EXPECT_NE(refusal(uneven).find("has 1 stages"), std::string::npos) << refusal(uneven);
}

TEST(Layout, HasATextAndEquals) {
  Layout layout = layout_of(2, 8, 4);
  layout.zero = 1;
  EXPECT_EQ(layout.to_string(), "dp 2, tp 8, pp 4 (1f1b), ZeRO-1, micro-batches of 1");
  const Layout same = layout;
  EXPECT_EQ(layout, same);
  layout.recompute.ranges = {{0, 3}, {7, 7}};
  EXPECT_NE(layout, same);
  EXPECT_NE(layout.to_string().find("blocks 0-3,7 recomputed"), std::string::npos) << layout.to_string();
  layout.batch_parts = {3, 3, 1};
  EXPECT_NE(layout.to_string().find("shares 2 x 3 and 1 x 1"), std::string::npos) << layout.to_string();
}

// Whatever the degrees, the programs of a layout hold together.
TEST(Layout, HasProgramsThatTheCheckerPasses) {
  for (const int64_t pp : {1, 2}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const GradientExchange exchange :
           {GradientExchange::kSum, GradientExchange::kServers, GradientExchange::kAsyncServers,
            GradientExchange::kAdasum, GradientExchange::kMomenta, GradientExchange::kLocal}) {
        if (zero > 0 && exchange != GradientExchange::kSum) continue;
        Layout layout = layout_of(2, 1, pp);
        layout.zero = zero;
        layout.exchange = exchange;
        StepShape shape = step_shape(layout);
        shape.pipeline.groups = {3};
        EXPECT_EQ(shape.update.exchange, exchange);
        EXPECT_NO_THROW(check_programs(programs_of(shape), shape.pipeline.leaves())) << layout.to_string();
      }
    }
  }
}

TEST(Layout, RefusesWhatCannotBe) {
  EXPECT_NE(refusal(layout_of(2, 0, 1)).find("tp = 0"), std::string::npos);
  Layout layout = layout_of(2, 1, 2);
  layout.zero = 2;
  layout.schedule = ScheduleKind::kPipeDream;
  EXPECT_NE(refusal(layout).find("under way"), std::string::npos);
  layout.schedule = ScheduleKind::k1F1B;
  layout.servers = 1;
  EXPECT_NE(refusal(layout).find("1 parameter servers"), std::string::npos);
  layout.zero = 0;
  EXPECT_NE(refusal(layout).find("not how gradients are exchanged"), std::string::npos);
  layout.exchange = GradientExchange::kServers;
  layout.schedule = ScheduleKind::k1F1B;
  EXPECT_EQ(refusal(layout), "none");
  layout.servers = 0;
  EXPECT_NE(refusal(layout).find("0 parameter servers"), std::string::npos);
  layout.exchange = GradientExchange::kSum;
  layout.split = {{0, 3}, {4, 6}};
  EXPECT_NE(refusal(layout).find("stage 1 has blocks 4 to 5"), std::string::npos);
}

TEST(ModelShape, ListsTheSizesThatAKindUses) {
  const auto used = [](ModelKind kind) {
    ModelShape shape;
    shape.kind = kind;
    std::string names;
    visit_sizes(shape, [&](const char* name, const auto&, bool is_used) { names += is_used ? name[0] : '.'; });
    return names;
  };
  EXPECT_EQ(used(ModelKind::kGpt2), "lhh.fsvt....");
  EXPECT_EQ(used(ModelKind::kLlama), "lhhkfsvt....");
  EXPECT_EQ(used(ModelKind::kMlp), "lh.......cic");
  EXPECT_EQ(used(ModelKind::kResNet), "........dcic");
}

}  // namespace
}  // namespace trireme
