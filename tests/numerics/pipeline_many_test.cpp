// Every synchronous schedule, on 2, 3 and 4 ranks, with and without recomputation and data parallelism, 20 steps each.
// ctest: slow timeout=1800
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "numerics/pipeline_cases.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

using Case = std::tuple<std::string, std::string>;  ///< model, schedule

class PipelineMany : public testing::TestWithParam<Case> {};

TEST_P(PipelineMany, EqualsOneWorker) {
  const auto& [model, schedule] = GetParam();
  std::vector<PipelineCase> cases;
  for (const int pp : {2, 3, 4}) {
    for (const int dp : {1, 2}) {
      for (const char* recompute : {"none", "full"}) cases.push_back({schedule, pp, dp, recompute});
    }
  }
  // Four micro-batches of two small images: eleven million weights are work enough.
  const Words fewer = {"--train.global_batch=8", "--train.leaves=4"};
  expect_equal_in_pipelines(model, cases, 20, model == "resnet" ? fewer : Words());
}

std::vector<std::string> synchronous_schedules() {
  std::vector<std::string> names;
  for (const ScheduleKind kind : schedule_kinds()) {
    if (is_synchronous(kind)) names.emplace_back(name_of(kind));
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, PipelineMany,
                         testing::Combine(testing::Values("gpt2", "llama", "mlp", "resnet"),
                                          testing::ValuesIn(synchronous_schedules())),
                         [](const testing::TestParamInfo<Case>& info) {
                           std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace trireme
