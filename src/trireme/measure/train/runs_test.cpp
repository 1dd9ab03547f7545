// Finished runs are read back as measured steps, and correct a cluster's constants.
#include "trireme/measure/train/runs.h"

#include <gtest/gtest.h>

#include <fstream>

#include "trireme/base/error.h"
#include "trireme/config/resolve.h"
#include "trireme/observe/event_log.h"
#include "trireme/observe/folder_test_util.h"
#include "trireme/observe/run_folder.h"
#include "trireme/simulate/simulate.h"

namespace trireme::measure {
namespace {

std::filesystem::path write_run(const TestFolder& folder, const std::string& name, double step_ms, bool ends = true) {
  const RunPaths run{folder / name};
  std::filesystem::create_directories(run.folder);
  std::ofstream(run.config()) << to_toml(resolve(
      {.file = "", .arguments = {"--train.global_batch=8", "--train.micro_batch=2"}, .default_preset = "gpt2-bench"}));
  EventLog log(run.events());
  log.append(EventKind::kStart, 0);
  log.append(EventKind::kStep, 5, {{"loss", 2.0}});
  if (ends) log.append(EventKind::kEnd, 5, {{"workers", 2}, {"step_ms", step_ms}, {"memory_bytes", 2e8}});
  return run.folder;
}

std::string refusal(const std::filesystem::path& folder) {
  try {
    measured_run(folder.string(), find_cluster("laptop"));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(MeasuredRun, HasTheLayoutThatWasTrained) {
  const TestFolder folder;
  const MeasuredStep run = measured_run(write_run(folder, "run", 40).string(), find_cluster("laptop"));
  EXPECT_DOUBLE_EQ(run.seconds, 0.04);
  EXPECT_EQ(run.memory_bytes, 2e8);
  EXPECT_EQ(run.job.layout.dp, 2);
  EXPECT_EQ(run.job.layout.micro_batch, 2);
  EXPECT_EQ(run.job.layout.global_batch, 8);
  EXPECT_EQ(run.job.model.hidden, 256);
  EXPECT_EQ(run.job.overlap, true) << "auto is what the trainer does";
  EXPECT_TRUE(run.job.layout.zero_sums_whole);
}

TEST(MeasuredRun, RefusesOtherFoldersAndRunsThatGoOn) {
  const TestFolder folder;
  EXPECT_NE(refusal(folder.path()).find("is no run folder"), std::string::npos);
  EXPECT_NE(refusal(write_run(folder, "killed", 40, /*ends=*/false)).find("has not come to an end"), std::string::npos);
}

TEST(CompareRuns, CorrectedConstantsPredictTheRun) {
  const TestFolder folder;
  const std::string run = write_run(folder, "run", 40).string();
  const RunComparison before = compare_runs({run}, "laptop", std::nullopt);
  EXPECT_FALSE(before.after);
  EXPECT_GT(before.before.time_error, 0.01);
  const RunComparison both = compare_runs({run}, "laptop", folder / "mine.json");
  ASSERT_TRUE(both.after);
  EXPECT_LT(both.after->time_error, before.before.time_error);
  const RunComparison again = compare_runs({run}, (folder / "mine.json").string(), std::nullopt);
  EXPECT_NEAR(again.before.time_error, both.after->time_error, 1e-3) << "the file has the corrected constants";
}

}  // namespace
}  // namespace trireme::measure
