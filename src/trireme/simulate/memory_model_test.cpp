#include "trireme/simulate/memory_model.h"

#include <gtest/gtest.h>

#include "trireme/simulate/simulate_test_util.h"

namespace trireme {
namespace {

TEST(Zero, IsTheTableOfThePaper) {
  const StateBytes whole = state_bytes(gpt_job());
  EXPECT_EQ(whole.sum(), 16);
  const auto gigabytes = [&](double billions, int zero, double replicas) {
    return billions * sharded(whole, zero, replicas).sum();
  };
  for (const double n : {1.0, 4.0, 64.0, 1000.0}) {
    EXPECT_DOUBLE_EQ(gigabytes(1, 0, n), 16);
    EXPECT_DOUBLE_EQ(gigabytes(1, 1, n), 4 + 12 / n);
    EXPECT_DOUBLE_EQ(gigabytes(1, 2, n), 2 + 14 / n);
    EXPECT_DOUBLE_EQ(gigabytes(1, 3, n), 16 / n);
  }
  const std::vector<std::tuple<double, double, std::array<double, 3>>> table = {{7.5, 64, {31.4, 16.6, 1.88}},
                                                                                {7.5, 4, {52.5, 41.3, 30}},
                                                                                {128, 64, {536, 284, 32}},
                                                                                {1000, 1024, {4011, 2013, 15.6}}};
  for (const auto& [billions, replicas, published] : table) {
    for (int zero = 1; zero <= 3; ++zero) {
      EXPECT_NEAR(gigabytes(billions, zero, replicas) / published[static_cast<size_t>(zero - 1)], 1, 0.005)
          << billions << "B on " << replicas << ", stage " << zero;
    }
  }
}

TEST(Zero, CountsTwentyBytesWithFloat32Gradients) {
  Job job = gpt_job();
  job.layout.float32_gradients = true;
  EXPECT_EQ(state_bytes(job).sum(), 20);
  job.layout.compute = NumberType::kFloat32;
  EXPECT_EQ(state_bytes(job).sum(), 16);
}

TEST(Zero, SavesFourEightAndNTimes) {
  const StateBytes whole = state_bytes(gpt_job());
  EXPECT_NEAR(whole.sum() / sharded(whole, 1, 1e6).sum(), 4, 1e-4);
  EXPECT_NEAR(whole.sum() / sharded(whole, 2, 1e6).sum(), 8, 1e-3);
  EXPECT_DOUBLE_EQ(whole.sum() / sharded(whole, 3, 96).sum(), 96);
}

TEST(Activations, AreTheFormulasOfThePaper) {
  for (const int64_t t : {1, 2, 8}) {
    for (const int64_t hidden : {1024, 6144}) {
      Job job = gpt_job(1, hidden, 16, 2048);
      job.layout.tp = t;
      job.layout.micro_batch = 3;
      const double sbh = 2048.0 * 3 * static_cast<double>(hidden), a = 16, s = 2048;
      const double h = static_cast<double>(hidden), n = static_cast<double>(t);
      EXPECT_DOUBLE_EQ(activation_bytes(job, false), sbh * (10 + 24 / n + 5 * a * s / (h * n)));
      job.layout.recompute = RecomputeKind::kFull;
      EXPECT_DOUBLE_EQ(activation_bytes(job, false), 2 * sbh);
      job.layout.recompute = RecomputeKind::kNone;
      job.layout.sequence = true;
      EXPECT_DOUBLE_EQ(activation_bytes(job, false), sbh / n * (34 + 5 * a * s / h));
      job.layout.recompute = RecomputeKind::kSelective;
      EXPECT_DOUBLE_EQ(activation_bytes(job, false), 34 * sbh / n);
    }
  }
}

TEST(Activations, OfAPipelineFollowItsSchedule) {
  Job job = gpt_job(16, 1024, 16, 512);
  job.layout.pp = 4;
  job.layout.micro_batch = 1;
  job.layout.global_batch = 8;
  const auto first_rank = [&] {
    const Simulation s = simulate(job, find_cluster("a100-80gb"));
    return s.ranks[0].played.peak_activation_bytes / (4 * activation_bytes(job, false));
  };
  EXPECT_DOUBLE_EQ(first_rank(), 4);
  job.layout.schedule = ScheduleKind::kGPipe;
  EXPECT_DOUBLE_EQ(first_rank(), 8);
  job.layout.schedule = ScheduleKind::kInterleaved;
  job.layout.interleave = 2;
  EXPECT_DOUBLE_EQ(first_rank(), 4 * (1 + 3.0 / (4 * 2)));
}

TEST(Parameters, AreCountedOnce) {
  Job job = gpt_job(12, 768, 12, 1024);
  job.model.vocab = 50257;
  EXPECT_DOUBLE_EQ(total_parameters(job.model), 124439808);  // GPT-2, as everybody counts it
  job.model.kind = ModelKind::kLlama;
  job.model.layers = 32;
  job.model.hidden = 4096;
  job.model.heads = 32;
  job.model.kv_heads = 8;
  job.model.ffn = 14336;
  job.model.vocab = 128256;
  job.model.tied = false;
  EXPECT_DOUBLE_EQ(total_parameters(job.model), 8030261248);  // Llama 3.1 8B
  job.model = {.kind = ModelKind::kResNet, .depth = 50, .channels = 3, .image = 224, .classes = 1000};
  EXPECT_DOUBLE_EQ(total_parameters(job.model), 25557032);  // ResNet-50
}

}  // namespace
}  // namespace trireme
