// JSON of programs and CSV of schedules: what is written is read again, and what is wrong is named.
#include "trireme/program/text.h"

#include <gtest/gtest.h>

#include <random>

#include "trireme/base/error.h"
#include "trireme/program/data_parallel.h"
#include "trireme/program/pipeline.h"
#include "trireme/program/schedules/schedule_csv.h"
#include "trireme/program/zero.h"

namespace trireme {
namespace {

std::vector<Program> some_programs() {
  std::vector<Program> all = {lower_data_parallel({24, 24, 2, 2}, 1), lower_data_parallel({4, 4, 2, 1}, 0)};
  for (const ScheduleKind kind : schedule_kinds()) {
    const PipelineShape shape{.schedule = make_schedule({.kind = kind, .num_ranks = 3, .num_micro_batches = 6}),
                              .num_replicas = 2,
                              .recompute = {true}};
    for (Program& program : lower_pipeline_ranks(shape, 1)) all.push_back(std::move(program));
  }
  for (const bool each : {false, true}) {
    const Program plain = lower_data_parallel({8, 8, 2, 3}, 1);
    all.push_back(shard_over_replicas(plain, {.zero = 2, .each_micro_batch = each}));
    all.push_back(shard_over_replicas(plain, {.zero = 3, .sharded_groups = {2}, .keep = !each}));
  }
  return all;
}

TEST(ProgramJson, RoundTrips) {
  for (const Program& program : some_programs()) EXPECT_EQ(program_from_json(program_to_json(program)), program);
}

TEST(ProgramJson, NamesWhatIsWrong) {
  for (const char* bad : {"", "[]", "{}", "{\"micro-batches\": \"x\"}"}) {
    EXPECT_THROW(program_from_json(bad), UsageError) << bad;
  }
  std::string json = program_to_json(some_programs()[0]);
  json.replace(json.find("Forward"), 7, "Forwrd");
  try {
    program_from_json(json);
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "there is no instruction 'Forwrd'\n  did you mean Forward?");
  }
}

TEST(ScheduleCsv, RoundTripsWithAndWithoutMessages) {
  for (const ScheduleKind kind : schedule_kinds()) {
    Schedule schedule = make_schedule({.kind = kind, .num_ranks = 3, .num_micro_batches = 5});
    Schedule read = schedule_from_csv(schedule_to_csv(schedule));
    read.update_every = schedule.update_every;  // a CSV says nothing of weights
    read.weights = schedule.weights;
    EXPECT_EQ(read, schedule);

    const std::vector<Program> programs = lower_pipeline_ranks({.schedule = schedule});
    Schedule whole = schedule_from_csv(schedule_to_csv(schedule_of(programs)));
    EXPECT_TRUE(whole.has_messages());
    whole.update_every = schedule.update_every;
    whole.weights = schedule.weights;
    EXPECT_EQ(lower_pipeline_ranks({.schedule = whole}), programs) << name_of(kind);
  }
}

TEST(ScheduleCsv, ReadsWhatOthersWrite) {
  const Schedule schedule =
      schedule_from_csv("0UNSHARD,0F0,0F1,,,0B0,,0B1,0REDUCE_GRAD\r\n,1F0,1B0,1F1,\"1I1\",1W1\r\n\r\n");
  EXPECT_EQ(schedule.num_ranks, 2);
  EXPECT_EQ(schedule.num_micro_batches, 2);
  EXPECT_EQ(schedule.rank_of_stage, (std::vector{0, 1}));
  EXPECT_EQ(schedule.ranks[0].size(), 4u);
  EXPECT_EQ(schedule.ranks[1].back().op, OpCode::kWeightGrad);
}

TEST(ScheduleCsv, NamesRowColumnAndWord) {
  const auto error_of = [](const std::string& csv) -> std::string {
    try {
      lower_pipeline_ranks({.schedule = schedule_from_csv(csv)});
    } catch (const UsageError& error) {
      const std::string text = error.what();
      return text.substr(0, text.find('\n'));
    }
    return "";
  };
  EXPECT_EQ(error_of("0F0,0B0\n1F0,1X0\n"), "row 2, column 2: '1X0' has the unknown action 'X'");
  EXPECT_EQ(error_of("0F0,F0\n"), "row 1, column 2: 'F0' does not begin with the number of a stage");
  EXPECT_EQ(error_of("0F0,0F\n"), "row 1, column 2: '0F' does not end with the number of a micro-batch");
  EXPECT_EQ(error_of("0F0x\n"), "row 1, column 1: '0F0x' has 'x' after the micro-batch");
  EXPECT_EQ(error_of("0UNSHART0\n"), "row 1, column 1: '0UNSHART0' has the unknown action 'UNSHART'");
  EXPECT_EQ(error_of("0F99999999999\n"),
            "row 1, column 1: '0F99999999999' does not end with the number of a micro-batch");
  EXPECT_EQ(error_of("0F0,0B0\n0F1,0B1\n"), "stage 0 is in row 1 and in row 2");
  EXPECT_EQ(error_of("0F0,0B0\n2F0,2B0\n"), "no row has stage 1, but there is a stage 2");
  EXPECT_EQ(error_of("0F0,0B0,0F1000000\n"),
            "1 stages and 1000001 micro-batches need 2000002 computations, but there are 3 cells");
  EXPECT_EQ(error_of("0F0,0B0,0SEND_B0\n"),
            "rank 0, SendGradient stage 0 micro-batch 0: there is nobody at the other end");
  EXPECT_EQ(error_of("\n,\n"), "the schedule is empty");
}

TEST(ScheduleCsv, SurvivesNoise) {
  std::mt19937 random(11);
  const std::string letters = "0123456789FBIWSENDRCV_,,,\n\"-+ ";
  const std::string good = schedule_to_csv(make_schedule({.num_ranks = 3, .num_micro_batches = 3}));
  for (int trial = 0; trial < 3000; ++trial) {
    std::string csv = good;
    for (int change = 0; change < 4; ++change) csv[random() % csv.size()] = letters[random() % letters.size()];
    try {
      lower_pipeline_ranks({.schedule = schedule_from_csv(csv)});
    } catch (const Error&) {  // a sentence, not a crash
    }
  }
}

}  // namespace
}  // namespace trireme
