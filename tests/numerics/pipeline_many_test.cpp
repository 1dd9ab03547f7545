// Every synchronous schedule, on 2, 3 and 4 ranks, with and without recomputation and data parallelism, 20 steps each.
// ctest: slow timeout=1800
#include <gtest/gtest.h>

#include "numerics/pipeline_cases.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

std::vector<PipelineCase> all_cases() {
  std::vector<PipelineCase> cases;
  for (const char* schedule : {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "pipedream-flush"}) {
    for (const int pp : {2, 3, 4}) {
      for (const int dp : {1, 2}) {
        for (const char* recompute : {"none", "full"}) cases.push_back({schedule, pp, dp, recompute});
      }
    }
  }
  return cases;
}

TEST(PipelineMany, Gpt2) { expect_equal_in_pipelines("gpt2", all_cases(), 20); }
TEST(PipelineMany, Llama) { expect_equal_in_pipelines("llama", all_cases(), 20); }
TEST(PipelineMany, Mlp) { expect_equal_in_pipelines("mlp", all_cases(), 20); }
/// Four micro-batches of two small images: eleven million weights are work enough.
TEST(PipelineMany, ResNet) {
  expect_equal_in_pipelines("resnet", all_cases(), 20, {"--train.global_batch=8", "--train.leaves=4"});
}
TEST(PipelineMany, TwoGroupsOfFour) { expect_equal_in_pipelines("gpt2", {{"1f1b", 4, 2}}, 20); }

}  // namespace
}  // namespace trireme
