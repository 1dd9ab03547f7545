#include "trireme/cli/bench_train_report.h"

#include <gtest/gtest.h>

#include "trireme/base/json.h"
#include "trireme/cli/bench_train_defaults.h"
#include "trireme/cli/bench_train_flops.h"

namespace trireme::cli {
namespace {

/// Two modes and two peers with round numbers.
BenchTrainRun made_up_run() {
  BenchTrainFlags flags;
  flags.config.words = {"--train.device=cuda"};
  flags.config = with_bench_defaults(flags);
  BenchTrainRun run;
  run.plan = plan_bench_train(flags);
  run.results.resize(2);
  for (size_t i = 0; i < 2; ++i) {
    BenchTrainResult& r = run.results[i];
    r.step_ms = i == 0 ? 125 : 100;
    r.units_per_second = 65'536 / r.step_ms * 1000;
    r.each_step_ms = {r.step_ms, r.step_ms};
    r.loss = 10.5;
    r.loss_repeats = i == 0;
    r.num_parameters = 124'475'904;
    r.device_memory_bytes = uint64_t{22} << 30;
    r.kernel_classes = {{"matrix products", 60}, {"attention", 20}, {"rest", 10}};
    r.kernels_ms = 90;
  }
  run.peers = {{"eager", 327'680, 200, uint64_t{40} << 30, {200}},
               {"compiled", 524'288, 125, uint64_t{30} << 30, {125}}};
  run.torch_version = "2.11.0";
  run.gpus = {{"NVIDIA H200", uint64_t{140} << 30, "9.0", "580.1"}};
  run.notes = {"something was left out"};
  return run;
}

void expect_parts(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(BenchTrainGpuReport, TextHasSpeedPeersAndKernels) {
  const std::string text = bench_train_text(made_up_run(), /*colour=*/false);
  expect_parts(text, {"gpt2 of 124M parameters · 64 samples a step · bfloat16 · NVIDIA H200\n",
                      "tok/s",
                      "TFLOP/s",
                      "GPU memory",
                      "by eager",
                      "by compiled",
                      "524,288",
                      "655,360",
                      "PyTorch eager",
                      "22 GiB",
                      "72 %",
                      "90 %",
                      "2.00x",
                      "1.25x",
                      "deterministic: loss 10.500000 after the last step, the same bits in",
                      "fastest: loss 10.500000 after the last step, with other bits in some repeats",
                      "where the time of a step goes",
                      "matrix products",
                      "66.7 %",
                      "attention",
                      "rest",
                      "all",
                      "medians of 2 repeats",
                      "PyTorch 2.11.0",
                      "note: something was left out\n"});
  EXPECT_EQ(text.find("of the peak"), std::string::npos);
  EXPECT_EQ(text.find("exposed"), std::string::npos);
  EXPECT_EQ(text.find("DDP"), std::string::npos);
}

TEST(BenchTrainGpuReport, ThePeakIsShownWhereItIsKnown) {
  BenchTrainRun run = made_up_run();
  run.peak_tflops = model_flops(run.main_case().config.model, 64) * 1e-12 / 0.05;  // twice the speed of the fastest
  const std::string text = bench_train_text(run, false);
  expect_parts(text, {"of the peak", "50.0 %", "40.0 %"});
  EXPECT_DOUBLE_EQ(bench_train_json(run)["of_peak"], 0.4);
}

TEST(BenchTrainGpuReport, ABusyShareAboveOneIsShownAsAll) {
  BenchTrainRun run = made_up_run();
  run.results[1].kernels_ms = 104;
  EXPECT_EQ(bench_train_text(run, false).find("104 %"), std::string::npos);
  EXPECT_DOUBLE_EQ(bench_train_json(run)["results"][1]["gpu_busy"], 1.04);
}

TEST(BenchTrainGpuReport, WithoutPeersKernelsAndNamesItIsShorter) {
  BenchTrainRun run = made_up_run();
  run.peers.clear();
  run.gpus.clear();
  run.torch_version.clear();
  for (BenchTrainResult& result : run.results) {
    result.kernel_classes.clear();
    result.kernels_ms = 0;
  }
  const std::string text = bench_train_text(run, false);
  expect_parts(text, {"bfloat16 · GPU\n", "–"});
  EXPECT_EQ(text.find("where the time"), std::string::npos);
  EXPECT_EQ(text.find("PyTorch"), std::string::npos);
  EXPECT_TRUE(bench_train_json(run)["gpu_busy"].is_null());
}

TEST(BenchTrainGpuReport, JsonHasTheSame) {
  const auto json = bench_train_json(made_up_run());
  EXPECT_EQ(json["layout"], "deterministic");
  EXPECT_EQ(json["deterministic"], true);
  EXPECT_EQ(json["results"].size(), 2u);
  EXPECT_EQ(json["results"][1]["layout"], "fastest");
  EXPECT_DOUBLE_EQ(json["tokens_per_second"], 524'288);
  EXPECT_DOUBLE_EQ(json["by_torch_eager"], 1.6);
  EXPECT_DOUBLE_EQ(json["results"][1]["by_torch_compiled"], 1.25);
  EXPECT_NEAR(json["results"][1]["tflops"], 560.1, 0.1);
  EXPECT_DOUBLE_EQ(json["gpu_busy"], 0.72);
  EXPECT_DOUBLE_EQ(json["kernels_ms"]["matrix products"], 60);
  EXPECT_EQ(json["device_memory_bytes"], uint64_t{22} << 30);
  EXPECT_TRUE(json["of_peak"].is_null());
  EXPECT_TRUE(json["ddp_tokens_per_second"].is_null());
  EXPECT_EQ(json["peers"][1]["peer"], "torch compiled");
  EXPECT_EQ(json["machine"]["gpus"][0]["name"], "NVIDIA H200");
  EXPECT_EQ(json["machine"]["torch"], "2.11.0");
}

TEST(BenchTrainReport, PrecisionsByMemoryAndBytes) {
  BenchTrainFlags flags;
  flags.config.num_processes = 2;
  flags.precision_table = true;
  flags.config = with_bench_defaults(flags);
  BenchTrainRun run;
  run.plan = plan_bench_train(flags);
  run.results.resize(run.plan.cases.size());
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  for (size_t row = 0; row < 3; ++row) {
    BenchTrainResult& r = run.results[run.plan.precisions[row]];
    r.each_step_ms = {100};
    r.weight_bytes = (row == 0 ? 8 : 4) * kMiB;
    r.gradient_bytes = (row == 2 ? 4 : 8) * kMiB;
    r.activation_bytes = (row == 0 ? 48 : 24) * kMiB;
    r.optimizer_bytes = (row == 0 ? 16 : 24) * kMiB;
    r.reduced_bytes_per_step = (row == 2 ? 3 : 6) * kMiB;
  }
  std::string text = bench_train_text(run, false);
  expect_parts(text,
               {"memory of worker 0 by precision, dp=2\n", "bytes on the wire by precision, dp=2\n",
                "  float32                         8 MiB      8 MiB       48 MiB    64 MiB       100 %     16 MiB  "
                "80 MiB       100 %\n",
                "  bfloat16, gradients float32     4 MiB      8 MiB       24 MiB    36 MiB        56 %     24 MiB  "
                "60 MiB        75 %\n",
                "  bfloat16, gradients bfloat16    4 MiB      4 MiB       24 MiB    32 MiB        50 %     24 MiB  "
                "56 MiB        70 %\n",
                "  bfloat16, gradients bfloat16           3 MiB        50 %\n"});
  EXPECT_EQ(text.find("sent a step"), std::string::npos) << "nothing was";
  for (const size_t i : run.plan.precisions) run.results[i].sent_bytes_per_step = run.results[i].reduced_bytes_per_step;
  text = bench_train_text(run, false);
  expect_parts(text, {"sent a step", "3 MiB        50 %        3 MiB        50 %\n"});
  EXPECT_EQ(bench_train_json(run)["precisions"][2]["activation_bytes"], 24 * kMiB);
}

TEST(BenchTrainReport, OnACpuHasTheOldTable) {
  BenchTrainFlags flags;
  flags.config.num_processes = 2;
  flags.config = with_bench_defaults(flags);
  BenchTrainRun run;
  run.plan = plan_bench_train(flags);
  run.results.resize(run.plan.cases.size());
  for (BenchTrainResult& r : run.results) {
    r.step_ms = 100;
    r.units_per_second = 1000;
    r.transport = "shared memory";
  }
  const std::string text = bench_train_text(run, false);
  expect_parts(text, {"shared memory\n", "exposed", "reduced a step", "efficiency 50 % of twice one worker"});
  EXPECT_EQ(text.find("TFLOP/s"), std::string::npos);
  EXPECT_FALSE(bench_train_json(run).contains("tflops"));
}

}  // namespace
}  // namespace trireme::cli
