// Every schedule, over every small shape: the checker accepts it, and its bubble and memory are those of the formulas.
#include "trireme/program/schedules/schedule.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "trireme/base/error.h"
#include "trireme/program/check/check.h"
#include "trireme/program/pipeline.h"
#include "trireme/program/timeline.h"

namespace trireme {
namespace {

/// Sanitizers take their time: there, every seventh shape.
int stride() { return std::getenv("TRIREME_SANITIZED") != nullptr ? 7 : 1; }

std::vector<Program> programs_of(const ScheduleShape& shape) {
  return lower_pipeline_ranks({.schedule = make_schedule(shape)});
}

Timeline equal_times(const std::vector<Program>& programs, double forward = 1, double backward = 1, double weight = 1) {
  return make_timeline(programs, StageTimes::equal(programs[0].num_stages(), forward, backward, weight, 0));
}

class EveryKind : public testing::TestWithParam<ScheduleKind> {};

TEST_P(EveryKind, IsAcceptedForEveryShape) {
  const ScheduleKind kind = GetParam();
  int shapes = 0;
  for (int ranks = 1; ranks <= 16; ++ranks) {
    for (int count = 1; count <= 64; ++count) {
      if (++shapes % stride() != 0) continue;
      const ScheduleShape shape{.kind = kind, .num_ranks = ranks, .num_micro_batches = count};
      const Schedule schedule = make_schedule(shape);
      const std::vector<Program> programs = lower_pipeline_ranks({.schedule = schedule});
      ASSERT_NO_THROW(check_programs(programs, schedule.micro_batches_in_update())) << ranks << " × " << count;
    }
  }
}

TEST_P(EveryKind, NeedsNoBuffersForSends) {
  for (const int ranks : {2, 3, 5, 8}) {
    for (const int count : {1, 2, 7, 24}) {
      const Schedule schedule = make_schedule({.kind = GetParam(), .num_ranks = ranks, .num_micro_batches = count});
      for (const int ahead : {1, 2}) {
        const std::vector<Program> programs = lower_pipeline_ranks({.schedule = schedule, .receive_ahead = ahead});
        EXPECT_NO_THROW(check_programs(programs, schedule.micro_batches_in_update(), {.sends_under_way = 0}))
            << ranks << " × " << count << ", ahead " << ahead;
      }
    }
  }
}

TEST_P(EveryKind, TakesUnevenTimes) {
  for (const int ranks : {1, 2, 5}) {
    const std::vector<Program> programs = programs_of({.kind = GetParam(), .num_ranks = ranks, .num_micro_batches = 7});
    StageTimes times = StageTimes::equal(programs[0].num_stages(), 1, 1, 1, 0.25);
    for (size_t i = 0; i < times.forward.size(); ++i) times.forward[i] += static_cast<double>(i) / 4;
    const Timeline timeline = make_timeline(programs, times);
    EXPECT_GE(timeline.bubble_rate, 0);
    EXPECT_LT(timeline.bubble_rate, 1);
    EXPECT_GE(timeline.makespan_ms, timeline.cost_ms);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedule, EveryKind, testing::ValuesIn(schedule_kinds()), [](const auto& info) {
  std::string name(name_of(info.param));
  std::erase(name, '-');
  return name;
});

TEST(Schedule, InterleavedIsAcceptedForEveryShape) {
  int shapes = 0;
  for (int interleave = 1; interleave <= 4; ++interleave) {
    for (int ranks = 1; ranks <= 16; ++ranks) {
      for (int count = 1; count <= 64; count += interleave < 3 ? 1 : 5) {
        if (++shapes % stride() != 0) continue;
        const std::vector<Program> programs = programs_of({.kind = ScheduleKind::kInterleaved,
                                                           .num_ranks = ranks,
                                                           .num_micro_batches = count,
                                                           .interleave = interleave});
        ASSERT_NO_THROW(check_programs(programs, count)) << ranks << " × " << count << ", interleave " << interleave;
        if (count % ranks != 0) continue;
        const double expected = (ranks - 1.0) / (interleave * count + ranks - 1.0);
        ASSERT_NEAR(equal_times(programs).bubble_rate, expected, 1e-12)
            << ranks << " × " << count << ", interleave " << interleave;
      }
    }
  }
}

TEST(Schedule, BubblesFollowTheFormula) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    for (int count = 1; count <= 64; count += stride()) {
      const double expected = (ranks - 1.0) / (count + ranks - 1.0);
      for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kPipeDreamFlush}) {
        const std::vector<Program> programs =
            programs_of({.kind = kind, .num_ranks = ranks, .num_micro_batches = count});
        ASSERT_NEAR(equal_times(programs).bubble_rate, expected, 1e-12) << ranks << " × " << count;
        ASSERT_NEAR(equal_times(programs, 3, 2, 2).bubble_rate, expected, 1e-12) << ranks << " × " << count;
      }
      const std::vector<Program> naive =
          programs_of({.kind = ScheduleKind::kNaive, .num_ranks = ranks, .num_micro_batches = count});
      ASSERT_NEAR(equal_times(naive).bubble_rate, (ranks - 1.0) / ranks, 1e-12) << ranks << " × " << count;
    }
  }
}

TEST(Schedule, BubblesAreThePublishedOnes) {
  struct Row {
    int ranks, count;
    double forward, backward, weight, comm, rate_1f1b, rate_h1, rate_h2;
  };
  for (const Row& row : {Row{8, 24, 18.522, 18.086, 9.337, 0.601, .2431, .1585, .1083},
                         Row{16, 48, 11.347, 11.248, 8.132, 0.377, .2552, .1397, .0672}}) {
    const auto rate = [&](ScheduleKind kind) {
      return make_timeline(programs_of({.kind = kind, .num_ranks = row.ranks, .num_micro_batches = row.count}),
                           StageTimes::equal(row.ranks, row.forward, row.backward, row.weight, row.comm))
          .bubble_rate;
    };
    EXPECT_NEAR(rate(ScheduleKind::k1F1B), row.rate_1f1b, 1e-4);
    EXPECT_NEAR(rate(ScheduleKind::kZbH1), row.rate_h1, 1e-4);
    EXPECT_NEAR(rate(ScheduleKind::kZbH2), row.rate_h2, 1e-4);
  }
}

TEST(Schedule, ZeroBubbleFillsThePipeline) {
  for (int ranks = 1; ranks <= 16; ++ranks) {
    const int count = 4 * ranks;
    const auto timeline = [&](ScheduleKind kind) {
      return equal_times(programs_of({.kind = kind, .num_ranks = ranks, .num_micro_batches = count}));
    };
    const Timeline plain = timeline(ScheduleKind::k1F1B), h1 = timeline(ScheduleKind::kZbH1);
    const Timeline h2 = timeline(ScheduleKind::kZbH2), v = timeline(ScheduleKind::kZbV);
    EXPECT_NEAR(h2.bubble_rate, 0, 1e-12) << ranks;
    EXPECT_NEAR(h1.bubble_rate, (ranks - 1.0) / (3.0 * count + ranks - 1), 1e-12) << ranks;
    EXPECT_NEAR(v.bubble_rate, 0, 1e-12) << ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      const size_t at = static_cast<size_t>(rank);
      EXPECT_EQ(plain.ranks[at].peak.activations, ranks - rank);
      EXPECT_LE(h1.ranks[at].peak.activations, ranks) << "H1 takes no more than the first rank of 1F1B";
      EXPECT_LE(h2.ranks[at].peak.activations, 2 * ranks - 1);
      EXPECT_LE(v.ranks[at].peak.activations, ranks) << "V as well, on every rank";
    }
  }
}

TEST(Schedule, ZeroBubbleVFitsItselfToAnyTimes) {
  std::mt19937 random(5);
  const auto time = [&](int most) { return static_cast<double>(random() % static_cast<unsigned>(most)) / 8; };
  for (int trial = 0; trial < 400; ++trial) {
    const int ranks = 1 + static_cast<int>(random() % 8), count = 1 + static_cast<int>(random() % 20);
    StageTimes times;
    for (int stage = 0; stage < 2 * ranks; ++stage) {
      times.forward.push_back(time(40));
      times.backward.push_back(time(40));
      times.weight.push_back(time(40));
      times.comm.push_back(time(10));
    }
    const std::vector<Program> programs =
        programs_of({.kind = ScheduleKind::kZbV, .num_ranks = ranks, .num_micro_batches = count, .times = times});
    ASSERT_NO_THROW(check_programs(programs, count)) << ranks << " × " << count;
    for (const Program& program : programs) {
      ASSERT_LE(peak_memory(program).activations, ranks == 1 ? 1.5 : ranks);
    }
  }
}

TEST(Schedule, HoldsAsManyActivationsAsTheFormulasSay) {
  for (const int ranks : {2, 4, 8}) {
    const auto first = [&](const ScheduleShape& shape) { return peak_memory(programs_of(shape)[0]).activations; };
    EXPECT_EQ(first({.kind = ScheduleKind::kGPipe, .num_ranks = ranks, .num_micro_batches = 32}), 32);
    EXPECT_EQ(first({.kind = ScheduleKind::kNaive, .num_ranks = ranks, .num_micro_batches = 32}), 1);
    for (const int v : {2, 4}) {
      EXPECT_DOUBLE_EQ(first({.kind = ScheduleKind::kInterleaved,
                              .num_ranks = ranks,
                              .num_micro_batches = 4 * ranks,
                              .interleave = v}),
                       ranks * (1 + (ranks - 1.0) / (ranks * v)));
    }
  }
}

TEST(Schedule, AsynchronousKindsAreAsStaleAsTheirPapersSay) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    const auto report = [&](ScheduleKind kind, int every) {
      const Schedule schedule =
          make_schedule({.kind = kind, .num_ranks = ranks, .num_micro_batches = 6 * ranks, .update_every = every});
      return check_programs(lower_pipeline_ranks({.schedule = schedule}), schedule.micro_batches_in_update());
    };
    const CheckReport stash = report(ScheduleKind::kPipeDream, 1), sync = report(ScheduleKind::kPipeDreamSync, 1);
    const CheckReport buffered = report(ScheduleKind::kPipeDream2Bw, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const size_t at = static_cast<size_t>(rank);
      EXPECT_EQ(stash.staleness[at], ranks - 1 - rank);
      EXPECT_EQ(stash.ranks[at].weight_versions, ranks - rank);
      EXPECT_EQ(sync.staleness[at], ranks - 1) << "all stages use what the first one used";
      EXPECT_EQ(buffered.staleness[at], 1);
      EXPECT_LE(buffered.ranks[at].weight_versions, 2);
    }
  }
}

TEST(Schedule, RefusesShapesThatCannotBe) {
  EXPECT_THROW(make_schedule({.num_ranks = 0}), UsageError);
  EXPECT_THROW(make_schedule({.num_micro_batches = 0}), UsageError);
  EXPECT_THROW(make_schedule({.kind = ScheduleKind::kGPipe, .num_micro_batches = 4, .interleave = 2}), UsageError);
  EXPECT_THROW(make_schedule({.kind = ScheduleKind::kPipeDream, .num_micro_batches = 4, .update_every = 3}),
               UsageError);
  EXPECT_THROW(make_schedule({.kind = ScheduleKind::kGPipe, .num_micro_batches = 4, .update_every = 2}), UsageError);
  EXPECT_THROW(schedule_kind("zb-h3"), UsageError);
  for (const ScheduleKind kind : schedule_kinds()) EXPECT_EQ(schedule_kind(name_of(kind)), kind);
}

}  // namespace
}  // namespace trireme
