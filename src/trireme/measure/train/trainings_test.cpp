// Statistics of what workers print, repeat by repeat.
#include "trireme/measure/train/trainings.h"

#include <gtest/gtest.h>

#include "trireme/config/resolve.h"

namespace trireme::measure {
namespace {

TrainCase bench_case() {
  TrainCase one;
  one.config = resolve({.file = "", .arguments = {}, .default_preset = "gpt2-bench"});
  one.samples_per_step = 16;
  return one;
}

nlohmann::json said(double step_ms, double forward_ms, double loss, uint64_t memory) {
  return {{"tokens_per_second", 1},      {"step_ms", step_ms}, {"loss", loss}, {"parts_ms", {{"forward", forward_ms}}},
          {"peak_memory_bytes", memory}, {"state_bytes", 7}};
}

TEST(SummariseTraining, TakesMediansOfTimesAndTheMostMemory) {
  const TrainResult result =
      summarise(bench_case(), {said(120, 50, 2.5, 300), said(90, 40, 2.5, 500), said(100, 60, 2.5, 400)}, {});
  EXPECT_EQ(result.step_ms, 100);
  EXPECT_EQ(result.each_step_ms, (std::vector<double>{120, 90, 100}));
  EXPECT_DOUBLE_EQ(result.units_per_second, 16 * 128 / 0.1);
  ASSERT_EQ(result.parts_ms.size(), 7u);
  EXPECT_EQ(result.parts_ms[1], (std::pair<std::string, double>{"forward", 50}));
  EXPECT_EQ(result.parts_ms[0].second, 0) << "a part that no worker has named";
  EXPECT_EQ(result.peak_memory_bytes, 500u);
  EXPECT_EQ(result.device_memory_bytes, 0u);
  EXPECT_EQ(result.said.at("state_bytes"), 7);
  EXPECT_TRUE(result.loss_repeats);
  EXPECT_EQ(result.ddp_step_ms, 0);
}

TEST(SummariseTraining, ALossWithOtherBitsIsSeen) {
  const double loss = 2.5;
  const auto repeats = [&](double other) {
    return summarise(bench_case(), {said(1, 1, loss, 1), said(1, 1, other, 1)}, {}).loss_repeats;
  };
  EXPECT_TRUE(repeats(loss));
  EXPECT_FALSE(repeats(std::nextafter(loss, 3)));
}

TEST(SummariseTraining, KernelsPeersAndImages) {
  nlohmann::json images = said(10, 5, 1, 1);
  images.erase("tokens_per_second");
  images["kernels"] = {{{"name", "gemm"}, {"us", 12.5}, {"count", 3}}};
  images["device_memory_bytes"] = 64;
  const TrainResult result = summarise(bench_case(), {images}, {30, 10, 20});
  EXPECT_EQ(result.unit, "samples");
  EXPECT_DOUBLE_EQ(result.units_per_second, 1600);
  EXPECT_EQ(result.kernels_us, (std::vector<std::pair<std::string, double>>{{"gemm", 12.5}}));
  EXPECT_EQ(result.device_memory_bytes, 64u);
  EXPECT_EQ(result.ddp_step_ms, 20);
  EXPECT_DOUBLE_EQ(result.ddp_units_per_second, 800);
}

TEST(SummariseTraining, OutputWithoutAStepTimeIsAnError) {
  nlohmann::json broken = said(1, 1, 1, 1);
  broken.erase("step_ms");
  EXPECT_THROW(summarise(bench_case(), {broken}, {}), nlohmann::json::exception);
}

}  // namespace
}  // namespace trireme::measure
