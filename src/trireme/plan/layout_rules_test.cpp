#include "trireme/plan/layout_rules.h"

#include <gtest/gtest.h>

#include "trireme/base/text.h"
#include "trireme/config/layout_of.h"
#include "trireme/config/resolve.h"
#include "trireme/config/value.h"
#include "trireme/plan/candidates.h"

namespace trireme {
namespace {

Config gpt_with(const std::vector<std::string>& more) {
  ConfigSources sources;
  sources.arguments = {"--model.kind=gpt2", "--model.layers=8",      "--model.hidden=512",     "--model.heads=8",
                       "--model.seq=256",   "--train.micro_batch=4", "--train.global_batch=32"};
  sources.arguments.insert(sources.arguments.end(), more.begin(), more.end());
  return resolve(sources);
}

/// Returns the number of candidates, and checks that each satisfies all rules.
size_t count_candidates(const std::vector<std::string>& more) {
  const Config config = gpt_with(more);
  PlanOptions options;
  options.compression = true;
  const std::vector<Candidate> all = all_candidates(config, find_cluster("h100-80gb"), 8, options);
  for (const Candidate& candidate : all) {
    Config planned = config;
    for (const auto& [key, value] : keys_of(candidate.job.layout)) set_key(planned, key, value, "the planner");
    for (const RuleScope scope : {RuleScope::kEveryTraining, RuleScope::kThisTrainer}) {
      EXPECT_NO_THROW(check_rules(planned, scope)) << join(more, " ") << ": " << candidate.job.layout.to_string();
    }
  }
  return all.size();
}

TEST(TrainerRules, CandidatesKeepThem) {
  const size_t any = count_candidates({});
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--precision.matmul=fp8", "--precision.compute=bfloat16", "--train.device=cuda"},
           {"--local.method=average"},
           {"--parallel.aggregation=server"},
           {"--compression.method=topk"},
           {"--precision.compute=float16"},
           {"--parallel.zero=3"},
           {"--train.recompute=0-3"}}) {
    const size_t some = count_candidates(more);
    EXPECT_GT(some, 0u) << more[0];
    EXPECT_LT(some, any) << more[0];
  }
}

TEST(TrainerRules, WhatIsGivenIsNotThePlannersToChange) {
  EXPECT_GT(all_candidates(gpt_with({"--parallel.schedule=pipedream"}), find_cluster("h100-80gb"), 8, {}).size(), 0u)
      << "though it does not go with model.tied";
}

TEST(TrainerRules, SayWhyGradientsAreNotCompressed) {
  EXPECT_EQ(why_not_compressible(gpt_with({})), "");
  EXPECT_EQ(why_not_compressed(gpt_with({"--precision.compute=float16"})), "");
  EXPECT_EQ(why_not_compressed(gpt_with({"--precision.compute=float16", "--compression.method=topk"})),
            "the trainer does not compress gradients with precision.compute = \"float16\": use bfloat16");
  EXPECT_EQ(why_not_compressible(gpt_with({"--local.method=average"})),
            "the trainer does not compress gradients with local.method = \"average\": set compression.method = "
            "\"none\"; local.format packs what DiLoCo sends");
}

}  // namespace
}  // namespace trireme
