#include "trireme/simulate/simulate.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/simulate/simulate_test_util.h"

namespace trireme {
namespace {

TEST(Simulate, IsNeverSlowerOnBetterHardware) {
  std::mt19937 random(5);
  for (int n = 0; n < 120; ++n) {
    const Job job = random_job(random);
    const Cluster cluster = find_cluster(n % 2 == 0 ? "a100-80gb" : "h100-80gb");
    const double step = simulate(job, cluster).step_seconds;
    SCOPED_TRACE(n);
    const auto faster = [&](auto change) {
      Cluster other = cluster;
      change(other);
      EXPECT_LE(simulate(job, other).step_seconds, step * (1 + 1e-9));
    };
    faster([](Cluster& c) { c.inside.bandwidth *= 2; });
    faster([](Cluster& c) { c.between.bandwidth *= 2; });
    faster([](Cluster& c) { c.inside.latency_us /= 2; });
    faster([](Cluster& c) { c.device.memory_bandwidth *= 2; });
    faster([](Cluster& c) {
      for (double& peak : c.device.peak_flops) peak *= 2;
    });
  }
}

TEST(Simulate, CountsModelFlopsAsMegatronDoes) {
  Job job = gpt_job(24, 2048, 16, 2048);
  job.layout.recompute = RecomputeKind::kFull;
  const Simulation s = simulate(job, find_cluster("a100-80gb"));
  const double b = 16, q = 2048, l = 24, h = 2048, v = 32000;
  EXPECT_NEAR(s.model_flops / (72 * b * q * l * h * h * (1 + q / (6 * h) + v / (12 * l * h))), 1, 1e-12);
  EXPECT_NEAR(s.hardware_flops / (96 * b * q * l * h * h * (1 + q / (6 * h) + v / (16 * l * h))), 1, 1e-12);
}

TEST(Simulate, DoesNotDependOnTheLayoutForItsFlops) {
  std::mt19937 random(9);
  for (int n = 0; n < 40; ++n) {
    Job job = random_job(random);
    const Cluster cluster = find_cluster("a100-80gb");
    const Simulation s = simulate(job, cluster);
    Job alone = job;
    alone.layout = {};
    alone.layout.compute = job.layout.compute;
    alone.layout.global_batch = job.layout.global_batch;
    EXPECT_NEAR(s.model_flops / simulate(alone, cluster).model_flops, 1, 1e-9);
    EXPECT_EQ(s.parameters, total_parameters(job.model));
  }
}

TEST(Simulate, KeepsTensorRanksInsideAHost) {
  const Cluster cluster = find_cluster("a100-80gb");
  Job inside = gpt_job(16, 4096, 32, 2048), across = inside;
  inside.layout.tp = 8;
  inside.layout.dp = 2;
  across.layout.tp = 16;
  across.layout.dp = 1;
  EXPECT_LT(simulate(inside, cluster).step_seconds, simulate(across, cluster).step_seconds);
  // Two hosts: stages across them beat tensor ranks across them.
  Job stages = across;
  stages.layout.tp = 8;
  stages.layout.pp = 2;
  stages.layout.micro_batch = 1;
  EXPECT_LT(simulate(stages, cluster).step_seconds, simulate(across, cluster).step_seconds);
}

TEST(Simulate, ProcessesShareCores) {
  Cluster cluster = find_cluster("laptop");
  cluster.devices_per_host = 16;
  Job job = gpt_job(4, 256, 4, 128);
  job.layout.compute = NumberType::kFloat32;
  job.layout.dp = 4;
  job.layout.global_batch = 16;
  const double own = simulate(job, cluster).step_seconds;
  cluster.shared_cores = 4;
  EXPECT_DOUBLE_EQ(simulate(job, cluster).step_seconds, own);
  cluster.shared_cores = 2;
  EXPECT_NEAR(simulate(job, cluster).step_seconds, 2 * own, 0.1 * own);
  // Ranks of a pipeline that wait leave their cores to the others.
  job.layout.dp = 1;
  job.layout.pp = 4;
  job.layout.schedule = ScheduleKind::kNaive;
  cluster.shared_cores = 0;
  const double naive = simulate(job, cluster).step_seconds;
  cluster.shared_cores = 2;
  EXPECT_NEAR(simulate(job, cluster).step_seconds, naive, 0.05 * naive);
  // A full pipeline keeps both cores busy except at its ends.
  job.layout.schedule = ScheduleKind::k1F1B;
  cluster.shared_cores = 0;
  const Simulation full = simulate(job, cluster);
  double work = 0;
  for (const SimulatedRank& rank : full.ranks) work += rank.played.busy + rank.played.update;
  cluster.shared_cores = 2;
  const double contended = simulate(job, cluster).step_seconds;
  EXPECT_GT(contended, 1.02 * work / 2);
  EXPECT_LT(contended, work / 2 + full.step_seconds / 2);
  // Context switches cost time only if processes share a core.
  cluster.sharing_cost = 0.2;
  EXPECT_GT(simulate(job, cluster).step_seconds, 1.01 * contended);
  cluster.shared_cores = 4;
  EXPECT_DOUBLE_EQ(simulate(job, cluster).step_seconds, full.step_seconds);
  job.layout.pp = 1;
  job.layout.dp = 4;
  cluster.shared_cores = 2;
  EXPECT_NEAR(simulate(job, cluster).step_seconds, 2.5 * own, 0.1 * own);
}

TEST(Simulate, ConstantsOfSoftwareCount) {
  const Cluster plain = find_cluster("laptop");
  Job job = gpt_job(4, 256, 4, 128);
  job.layout.compute = NumberType::kFloat32;
  job.layout.dp = 1;
  job.layout.tp = 2;
  job.layout.micro_batch = 2;
  job.layout.global_batch = 8;
  const auto seconds = [&](double Stack::*constant, double value) {
    Cluster cluster = plain;
    cluster.stack.*constant = value;
    return simulate(job, cluster).step_seconds;
  };
  const double base = simulate(job, plain).step_seconds;
  const double tensors = seconds(&Stack::tensor_us, 50) - base, sums = seconds(&Stack::accumulation_bytes, 12) - base;
  EXPECT_GT(tensors, 4 * 4 * 20 * 50e-6);  // micro-batches, blocks, operators
  const double moved = 4 * 12 * simulate(job, plain).stages[0].sum.parameters;
  EXPECT_NEAR(sums, moved / plain.device.memory_bandwidth, 0.01 * sums);
  job.layout.tp = 1;
  EXPECT_DOUBLE_EQ(seconds(&Stack::tensor_us, 50), simulate(job, plain).step_seconds);
  EXPECT_DOUBLE_EQ(seconds(&Stack::gated_traffic, 3), simulate(job, plain).step_seconds) << "there are no gates";
  job.model.kind = ModelKind::kLlama;
  EXPECT_GT(seconds(&Stack::gated_traffic, 3), simulate(job, plain).step_seconds);
}

TEST(Simulate, MemoryOfSoftwareCounts) {
  const Cluster plain = find_cluster("laptop");
  Job job = gpt_job(4, 256, 4, 128);
  job.layout.compute = NumberType::kFloat32;
  job.layout.dp = 1;
  job.layout.micro_batch = job.layout.global_batch = 4;
  const auto more = [&](double Stack::*constant, double value) {
    Cluster cluster = plain;
    cluster.stack.*constant = value;
    return simulate(job, cluster).memory_bytes() - simulate(job, plain).memory_bytes();
  };
  const auto embedding = static_cast<double>(job.model.vocab * job.model.hidden);
  EXPECT_NEAR(more(&Stack::tensor_bytes, 10), 10 * embedding, 1);
  EXPECT_NEAR(more(&Stack::embedding_bytes, 1e4), 1e4 * embedding, 1e-3 * 1e4 * embedding);
  EXPECT_EQ(more(&Stack::tensor_rank_bytes, 1e9), 0);
  EXPECT_EQ(more(&Stack::gated_share, 5), 0);
  job.layout.tp = 2;
  EXPECT_NEAR(more(&Stack::tensor_rank_bytes, 1e9), 2e9, 1);
  EXPECT_NEAR(more(&Stack::tensor_bytes, 10), 5 * embedding, 1);
  job.layout.tp = 1;
  job.layout.pp = 2;  // the two uses of the embedding are on two ranks
  EXPECT_NEAR(more(&Stack::embedding_bytes, 1e4), 0.5e4 * embedding, 1e-3 * 1e4 * embedding);
  job.layout.pp = 1;
  job.model.kind = ModelKind::kLlama;
  EXPECT_GT(more(&Stack::gated_share, 5), 0);
}

// Simulator and trainer have the same layers, so both partition a model identically.
TEST(Simulate, LayersOfConvolutionsAreTheTrainers) {
  Job job = gpt_job(4, 256, 4, 128);
  job.model.kind = ModelKind::kResNet;
  job.model.image = 28;
  job.model.channels = 1;
  job.model.classes = 10;
  for (const auto& [depth, blocks] : {std::pair{18, 8}, {50, 16}, {101, 33}}) {
    job.model.depth = depth;
    job.layout.dp = job.layout.pp = 1;
    const Simulation whole = simulate(job, find_cluster("laptop"));
    EXPECT_EQ(whole.blocks.size(), static_cast<size_t>(blocks) + 2) << depth;
    job.layout.pp = 2;
    const Simulation halves = simulate(job, find_cluster("laptop"));
    EXPECT_NEAR(halves.parameters, whole.parameters, 1);
    double flops[2] = {};
    for (int stage = 0; stage < 2; ++stage) {
      const LayerRange& range = halves.stages[static_cast<size_t>(stage)].blocks;
      for (int n = range.first; n < range.last; ++n) {
        flops[stage] += halves.blocks[static_cast<size_t>(n)].model_flops;
      }
    }
    EXPECT_NEAR(flops[0] / flops[1], 1, 0.35) << depth;
  }
}

TEST(Simulate, ZeroSavesMemoryAndCostsTime) {
  Job job = gpt_job(12, 2048, 16, 1024);
  job.layout.dp = 16;
  job.layout.micro_batch = 1;
  job.layout.global_batch = 64;
  const Cluster cluster = find_cluster("h100-80gb");
  double states = 1e18;
  for (int zero = 0; zero <= 3; ++zero) {
    job.layout.zero = zero;
    const Simulation s = simulate(job, cluster);
    EXPECT_LT(s.ranks[0].memory.states(), states);
    states = s.ranks[0].memory.states();
    const StateBytes bytes = sharded(state_bytes(job), zero, 16);
    EXPECT_NEAR(states, s.parameters * bytes.sum(), 1);
  }
}

TEST(Simulate, OffloadTradesTimeForMemory) {
  Job job = gpt_job(12, 2048, 16, 1024);
  const Cluster cluster = find_cluster("h100-80gb");
  const Simulation held = simulate(job, cluster);
  job.layout.offload = true;
  const Simulation offloaded = simulate(job, cluster);
  EXPECT_NEAR(held.memory_bytes() - offloaded.memory_bytes(), 12 * held.parameters, 0.01 * held.memory_bytes());
  EXPECT_NEAR(offloaded.step_seconds - held.step_seconds, 24 * held.parameters / 10e9, 0.01 * offloaded.step_seconds);
  // Weights are fetched for both passes of a micro-batch: 2 bytes per parameter less except for a layer or two, and
  // part of the transfer overlaps.
  job.layout.zero = 3;
  job.layout.offload_weights = true;
  const Simulation weights = simulate(job, cluster);
  EXPECT_LT(weights.memory_bytes(), offloaded.memory_bytes() - held.parameters);
  EXPECT_GT(weights.step_seconds, offloaded.step_seconds);
  const auto passes = 2 * static_cast<double>(job.layout.accumulation());
  EXPECT_LT(weights.step_seconds, offloaded.step_seconds + passes * 2 * held.parameters / 10e9);
}

TEST(Simulate, ServersAreABottleneckUntilThereAreAsMany) {
  Job job = gpt_job(12, 1024, 16, 512);
  Cluster cluster = find_cluster("v100-16gb");
  cluster.devices_per_host = 1;  // one worker per host
  job.layout.dp = 8;
  job.layout.micro_batch = 1;
  job.layout.global_batch = 8;
  job.layout.float32_gradients = true;  // like the servers' weights
  job.model.tied = false;
  const Simulation ring = simulate(job, cluster);
  std::vector<double> seconds;
  job.layout.exchange = GradientExchange::kServers;
  for (const int64_t servers : {1, 2, 4, 8}) {
    job.layout.servers = servers;
    const Simulation s = simulate(job, cluster);
    seconds.push_back(s.step_seconds);
    EXPECT_LT(s.memory_bytes(), ring.memory_bytes()) << "the optimizer's state is on the servers";
  }
  for (size_t i = 1; i < seconds.size(); ++i) EXPECT_LT(seconds[i], seconds[i - 1]);
  EXPECT_GT(seconds[0], 3 * ring.step_seconds);
  EXPECT_NEAR(seconds[3] / ring.step_seconds, 1, 0.35) << "as many servers as workers send what a ring sends";
  job.layout.zero = 1;
  EXPECT_THROW(simulate(job, cluster), UsageError);
}

/// Replicas with several micro-batches of one sample.
Job job_of_replicas(int64_t replicas) {
  Job job = gpt_job(12, 1024, 16, 512);
  job.layout.dp = replicas;
  job.layout.micro_batch = 1;
  job.layout.global_batch = 64;
  return job;
}

TEST(Simulate, AServersLinkCarriesItsShareOfEverything) {
  Job job = job_of_replicas(16);
  const Cluster cluster = find_cluster("v100-16gb");
  job.layout.servers = 1;
  job.layout.exchange = GradientExchange::kServers;
  job.model.tied = false;
  job.overlap = false;
  const double bytes = (2 + 4) * total_parameters(job.model) * 16, seconds = bytes / cluster.between.effective();
  const Simulation s = simulate(job, cluster);
  EXPECT_GT(s.step_seconds, seconds) << "gradients there in the type of the computation, float32 weights back";
  EXPECT_LT(s.step_seconds, 1.25 * seconds);
  job.layout.pp = 2;  // half as many replicas send half of the bytes, in whichever stage
  job.layout.dp = 8;
  EXPECT_GT(simulate(job, cluster).step_seconds, seconds / 2);
}

TEST(Simulate, ReplicasMayShardInGroups) {
  Job job = job_of_replicas(32);
  const Cluster cluster = find_cluster("a100-80gb");
  job.layout.zero = 3;
  const Simulation all = simulate(job, cluster);
  job.layout.zero_shards = 32;
  EXPECT_EQ(simulate(job, cluster).memory_bytes(), all.memory_bytes());
  job.layout.zero_shards = 8;  // one host
  const Simulation hosts = simulate(job, cluster);
  const auto states = [](const Simulation& s) {
    const RankMemory& memory = s.ranks[0].memory;
    return memory.weights + memory.gradients + memory.optimizer;
  };
  EXPECT_NEAR(states(hosts) / states(all), 4, 1e-9);
  EXPECT_LT(hosts.step_seconds, all.step_seconds) << "weights come from inside the host";
  for (const int64_t shards : {5, 64}) {
    job.layout.zero_shards = shards;
    EXPECT_THROW(simulate(job, cluster), UsageError) << shards;
  }
}

TEST(Simulate, StagesHoldTheVersionsOfTheirSchedule) {
  Job job = gpt_job();
  job.layout.pp = 4;
  job.layout.micro_batch = 1;
  const Cluster cluster = find_cluster("a100-80gb");
  const Simulation flushed = simulate(job, cluster);
  const std::vector<std::pair<ScheduleKind, std::vector<double>>> expected = {
      {ScheduleKind::kPipeDream, {4, 3, 2, 1}},
      {ScheduleKind::kPipeDreamSync, {4, 4, 4, 4}},
      {ScheduleKind::kPipeDream2Bw, {2, 2, 2, 2}},
      {ScheduleKind::kPipeDreamFlush, {1, 1, 1, 1}}};
  for (const auto& [kind, versions] : expected) {
    job.layout.schedule = kind;
    const Simulation s = simulate(job, cluster);
    for (size_t rank = 0; rank < versions.size(); ++rank) {
      EXPECT_DOUBLE_EQ(s.ranks[rank].memory.weights, versions[rank] * flushed.ranks[rank].memory.weights)
          << name_of(kind) << ", rank " << rank;
    }
  }
}

TEST(Simulate, RecomputationTradesTimeForMemory) {
  Job job = gpt_job(12, 2048, 16, 2048);
  const Cluster cluster = find_cluster("a100-80gb");
  const auto with = [&](RecomputeKind kind) {
    job.layout.recompute = kind;
    return simulate(job, cluster);
  };
  const Simulation none = with(RecomputeKind::kNone), selective = with(RecomputeKind::kSelective),
                   full = with(RecomputeKind::kFull);
  EXPECT_GT(none.memory_bytes(), selective.memory_bytes());
  EXPECT_GT(selective.memory_bytes(), full.memory_bytes());
  EXPECT_LT(none.step_seconds, selective.step_seconds);
  EXPECT_LT(selective.step_seconds, full.step_seconds);
  job.layout.recompute = RecomputeKind::kNone;
  job.layout.recompute.ranges = {{0, 5}};
  const Simulation half = simulate(job, cluster);
  EXPECT_GT(half.memory_bytes(), full.memory_bytes());
  EXPECT_LT(half.memory_bytes(), none.memory_bytes());
  EXPECT_NEAR(half.step_seconds, (none.step_seconds + full.step_seconds) / 2, 1e-9);
}

TEST(Simulate, PlaysEverySchedule) {
  Job job = gpt_job(16, 1024, 16, 512);
  job.layout.pp = 4;
  job.layout.dp = 2;
  job.layout.global_batch = 32;
  const Cluster cluster = find_cluster("h100-80gb");
  const double naive = [&] {
    job.layout.schedule = ScheduleKind::kNaive;
    return simulate(job, cluster).step_seconds;
  }();
  for (const ScheduleKind kind : schedule_kinds()) {
    job.layout.schedule = kind;
    const Simulation s = simulate(job, cluster);
    // PipeDream updates after each micro-batch.
    if (is_synchronous(kind)) {
      EXPECT_LE(s.step_seconds, naive * 1.001) << name_of(kind);
    }
    EXPECT_GE(s.bubble_fraction, 0);
    EXPECT_LT(s.bubble_fraction, 1);
  }
}

TEST(Simulate, PartsAddUpToTheStep) {
  std::mt19937 random(11);
  for (int n = 0; n < 120; ++n) {
    const Job job = random_job(random);
    SCOPED_TRACE(testing::Message() << "case " << n << ", pp " << job.layout.pp << ", zero " << job.layout.zero);
    const Simulation s = simulate(job, find_cluster(n % 2 == 0 ? "a100-80gb" : "v100-16gb"));
    const StepParts& parts = s.parts;
    for (const double part : {parts.computing, parts.communication, parts.bubble, parts.update}) EXPECT_GE(part, 0);
    EXPECT_NEAR((parts.computing + parts.communication + parts.bubble + parts.update) / s.step_seconds, 1, 1e-9);
    EXPECT_LE(parts.bubble, s.bubble_fraction * s.step_seconds * (1 + 1e-9));
  }
}

TEST(Simulate, UnequalStagesAreNoBubble) {
  Job job = gpt_job(48);
  job.layout.pp = 4;
  job.layout.global_batch = 512;
  job.layout.split = {{0, 10}, {10, 20}, {20, 30}, {30, 50}};
  const Simulation s = simulate(job, find_cluster("a100-80gb"));
  EXPECT_EQ(s.busiest, 3);
  EXPECT_GT(s.ranks[0].played.idle, 0.3 * s.step_seconds) << "the first stage waits for the last";
  EXPECT_LT(s.parts.bubble, 0.05 * s.step_seconds);
  EXPECT_GT(s.parts.computing, 0.9 * s.step_seconds);
}

// Trireme's trainer launches one operator for all tensors of a block; constants measured with it already include that.
TEST(Simulate, UpdatesOfTheTrainerAreOnePass) {
  Job job = gpt_job(16), trained = job;
  trained.software = Software::kTrireme;
  Cluster cluster = find_cluster("a100-80gb");
  cluster.stack.fused_update = true;
  const auto update = [&](const Job& of) { return simulate(of, cluster).parts.update; };
  EXPECT_NEAR(update(job) - update(trained), 18 * 11 * cluster.device.kernel_us * 1e-6, 1e-9);
  cluster.stack.sums_in_tree = true;
  EXPECT_EQ(update(job), update(trained));
}

// Published trainings with ZeRO-3 ran FSDP: eager GPTs, and exposed tensor-parallel collectives. Trireme's do not.
TEST(Simulate, ShardedWeightsOfOthersAreEager) {
  const Cluster cluster = find_cluster("h100-80gb");
  Job job = gpt_job(16);
  job.layout.compute = NumberType::kBfloat16;
  job.layout.tp = 2;
  job.layout.sequence = true;
  job.layout.dp = 4;
  job.layout.zero = 3;
  const auto block = [&](const Job& of) { return simulate(of, cluster).blocks[1]; };
  Job trained = job, other = job;
  trained.software = Software::kTrireme;
  other.layout.zero = 2;
  EXPECT_EQ(block(trained).forward, block(other).forward);
  EXPECT_GT(block(job).forward, 1.05 * block(other).forward);
  EXPECT_GT(block(job).exposed, 2 * block(other).exposed);
  job.model.kind = other.model.kind = ModelKind::kLlama;  // compiled: only the collectives differ
  EXPECT_NEAR(block(job).forward - block(job).exposed / 2, block(other).forward - block(other).exposed / 2, 1e-9);
}

TEST(Simulate, WaitingForMessagesIsCommunication) {
  Job job = gpt_job(16);
  job.model.tied = false;  // tied gradients would be sent during the update
  job.layout.pp = 4;
  job.layout.tp = 8;
  job.layout.global_batch = 16;
  Cluster fast = find_cluster("h100-80gb");
  fast.between.bandwidth = 1e15;
  fast.between.latency_us = fast.between.ramp_us = 0;
  Cluster slow = fast;
  slow.between.bandwidth = 1e8;
  const Simulation quick = simulate(job, fast), s = simulate(job, slow);
  EXPECT_GT(s.step_seconds, 2 * quick.step_seconds);
  EXPECT_NEAR(s.parts.bubble / quick.parts.bubble, 1, 1e-6) << "the schedule's own";
  EXPECT_GT(s.parts.communication, s.parts.bubble);
  EXPECT_GT(s.parts.communication, 0.9 * (s.step_seconds - quick.step_seconds));
  EXPECT_GT(s.bubble_fraction, quick.bubble_fraction) << "that is all of the waiting";
}

TEST(Simulate, UpdatesOfOtherRanksAreNoBubble) {
  Job job = gpt_job();
  job.layout.pp = 4;
  job.layout.dp = 2;
  job.layout.micro_batch = 1;
  job.layout.schedule = ScheduleKind::kPipeDream;
  const Simulation s = simulate(job, find_cluster("a100-80gb"));
  ASSERT_GT(s.parts.update, 0.5 * s.step_seconds) << "one a micro-batch";
  EXPECT_LT(s.bubble_fraction, 0.15);
  // The rest of the time is waiting for messages, and for the sums of other ranks.
  EXPECT_NEAR(s.bubble_fraction, (s.parts.bubble + s.parts.communication) / s.step_seconds, 0.03);
}

TEST(Simulate, KnowsExpertsContextAndImages) {
  const Cluster cluster = find_cluster("h100-80gb");
  Job job = gpt_job();
  job.layout.dp = 8;
  const double dense = simulate(job, cluster).parameters;
  job.model.experts = 8;
  job.model.active_experts = 2;
  const Simulation moe = simulate(job, cluster);
  EXPECT_GT(moe.parameters, 4 * dense);
  job.layout.ep = 8;
  const Simulation sharded = simulate(job, cluster);
  EXPECT_LT(sharded.memory_bytes(), moe.memory_bytes());
  EXPECT_GT(sharded.parts.communication, 0);
  Job longer = gpt_job(8, 1024, 16, 65536);
  longer.layout.micro_batch = longer.layout.global_batch = 1;
  const Simulation alone = simulate(longer, cluster);
  longer.layout.cp = 8;
  const Simulation split = simulate(longer, cluster);
  EXPECT_LT(split.step_seconds, alone.step_seconds / 4);
  EXPECT_LT(split.ranks[0].memory.activations, alone.ranks[0].memory.activations / 4);
  Job image;
  image.model = {.kind = ModelKind::kResNet, .depth = 50, .channels = 3, .image = 224, .classes = 1000};
  image.layout = gpt_job().layout;
  image.layout.dp = 2;
  EXPECT_GT(simulate(image, cluster).model_flops, 0);
}

TEST(Simulate, AnswersForVeryManyDevices) {
  Job job = gpt_job(128, 16384, 128, 8192);
  job.layout.tp = 8;
  job.layout.pp = 16;
  job.layout.dp = 1024;
  job.layout.micro_batch = 1;
  job.layout.global_batch = 16384;
  const Simulation s = simulate(job, find_cluster("h100-80gb"));
  EXPECT_EQ(s.devices(), 131072);
  EXPECT_EQ(s.ranks.size(), 16u);
}

TEST(Simulate, RefusesWhatCannotBe) {
  const Cluster cluster = find_cluster("a100-80gb");
  const auto refused = [&](auto change) {
    Job job = gpt_job();
    change(job);
    EXPECT_THROW(simulate(job, cluster), UsageError);
  };
  refused([](Job& j) { j.layout.tp = 3; });
  refused([](Job& j) { j.layout.pp = 64; });
  refused([](Job& j) { j.layout.global_batch = 15; });
  refused([](Job& j) { j.layout.cp = 7; });
  refused([](Job& j) { j.layout.ep = 2; });
  refused([](Job& j) { j.layout.zero = 4; });
  refused([](Job& j) { j.layout.dp = 0; });
  refused([](Job& j) { j.layout.offload_weights = true; });
  refused([](Job& j) {
    j.layout.pp = 8;
    j.layout.global_batch = 1'000'000;
  });
  refused([](Job& j) { j.model.heads = 7; });
  Job job = gpt_job();
  job.layout.dp = 8;
  EXPECT_THROW(simulate(job, find_cluster("laptop")), UsageError);
}

}  // namespace
}  // namespace trireme
