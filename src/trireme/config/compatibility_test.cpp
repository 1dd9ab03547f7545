#include "trireme/config/compatibility.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/config/check.h"
#include "trireme/config/resolve.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Config config_with(const Words& words) {
  ConfigSources sources;
  sources.arguments = words;
  return resolve(sources);
}

/// What a training on `workers` is refused with.
std::string refusal(const Config& config, RuleScope scope, int64_t workers) {
  try {
    scope == RuleScope::kEveryTraining ? check_sizes(config, workers) : check(config, workers);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing";
}

struct Case {
  Words words;
  int64_t workers = 2;
};

void expect_each_refuses(RuleScope scope, const std::vector<Case>& cases) {
  const std::vector<Rule>& all = rules(scope);
  ASSERT_EQ(all.size(), cases.size()) << "every rule has a case, in the order of the table";
  for (size_t i = 0; i < all.size(); ++i) {
    const Rule& rule = all[i];
    const Config config = config_with(cases[i].words);
    const std::string other = rule.names_other ? " " + with_origin(config, rule.other.key) : "";
    EXPECT_EQ(refusal(config, scope, cases[i].workers),
              fmt::format("{} {}{}\n  {}", with_origin(config, rule.one.key), rule.reason, other, rule.cure))
        << "rule " << i << " of " << all.size();
    EXPECT_FALSE(rule.is_broken_by(config_with({}))) << rule.one.key << " " << rule.reason;
  }
}

const Words kFp8 = {"--precision.matmul=fp8", "--precision.compute=bfloat16", "--train.device=cuda"};
const Words kPipeline = {"--parallel.pp=2"}, kTensor = {"--parallel.tp=2"};

TEST(Compatibility, EveryRuleOfEveryTrainingRefuses) {
  const auto stages = [](const std::string& word) { return Case{{"--parallel.stages=2x1,1x1", word}, 3}; };
  expect_each_refuses(RuleScope::kEveryTraining,
                      {{{"--data.kind=text"}},
                       {{"--data.kind=generated", "--data.path=x"}},
                       {{"--data.kind=images", "--data.path=x"}},
                       {{"--model=mlp", "--data.kind=text", "--data.path=x"}},
                       {{"--model.vocab=100", "--data.kind=text", "--data.path=x"}},
                       {{"--model=mlp", "--train.recompute=selective"}},
                       {{"--precision.matmul=fp8", "--precision.compute=bfloat16"}},
                       {{"--precision.matmul=fp8", "--train.device=cuda"}},
                       {kFp8 + Words{"--model=mlp"}},
                       {{"--optimizer.schedule=step"}},
                       {{"--optimizer.kind=sgd", "--optimizer.nesterov", "--optimizer.momentum=0"}},
                       {{"--parallel.sequence"}},
                       {kTensor + Words{"--model=mlp", "--parallel.sequence"}},
                       stages("--parallel.tp=2"),
                       stages("--parallel.interleave=2"),
                       stages("--parallel.schedule=interleaved"),
                       stages("--parallel.aggregation=server"),
                       stages("--compression.method=topk"),
                       stages("--compression.gather=int8"),
                       stages("--parallel.cp=2"),
                       stages("--parallel.ep=2"),
                       stages("--local.method=average"),
                       stages("--parallel.shares=2,1"),
                       stages("--parallel.zero_shards=1"),
                       {{"--model=resnet18", "--model.sync_statistics", "--parallel.stages=2x1,1x1"}, 3},
                       {{"--parallel.split=4,4"}},
                       {{"--parallel.schedule=mine.csv"}},
                       {kPipeline + Words{"--parallel.schedule=gpipe", "--parallel.interleave=2"}},
                       {kPipeline + Words{"--parallel.schedule=zb-h1", "--train.recompute=selective"}},
                       {kPipeline + Words{"--parallel.schedule=zb-h1", "--parallel.zero=3"}}});
}

TEST(Compatibility, EveryRuleOfTheTrainerRefuses) {
  const Words batch_parts = {"--parallel.shares=3,1"};
  const Words asynchronous = kPipeline + Words{"--parallel.schedule=pipedream", "--train.clip=0"};
  const Words untied = asynchronous + Words{"--model.tied=false"};
  const Words onebit = {"--compression.method=onebit_adam", "--compression.warmup_steps=5", "--train.clip=0"};
  const Words topk = {"--compression.method=topk"}, local = {"--local.method=average"};
  const Words adasum = {"--parallel.aggregation=adasum"}, server = {"--parallel.aggregation=server"};
  const Words rows = server + Words{"--server.rows"};
  expect_each_refuses(RuleScope::kThisTrainer,
                      {{kFp8 + kTensor},
                       {kFp8 + kPipeline},
                       {batch_parts + kPipeline, 4},
                       {batch_parts + Words{"--parallel.zero=3"}},
                       {batch_parts + Words{"--parallel.zero=2", "--parallel.zero_accumulation=shares"}},
                       {batch_parts + Words{"--model=resnet18", "--model.sync_statistics"}},
                       {batch_parts + adasum},
                       {batch_parts + local},
                       {kPipeline + Words{"--parallel.update_every=2"}},
                       {kPipeline + Words{"--parallel.schedule=pipedream"}},
                       {asynchronous + Words{"--precision.compute=float16"}},
                       {asynchronous + Words{"--train.on_nan=skip"}},
                       {asynchronous},
                       {{"--parallel.offload=memory"}},
                       {onebit + Words{"--parallel.offload=folder", "--train.device=cuda"}},
                       {{"--parallel.zero_shards=2"}},
                       {{"--parallel.zero_keep"}},
                       {{"--parallel.offload_weights", "--parallel.offload=folder"}},
                       {{"--parallel.offload_weights", "--parallel.zero=3"}},
                       {{"--parallel.zero_accumulation=shares"}},
                       {untied + Words{"--parallel.zero=1"}},
                       {kFp8 + Words{"--parallel.zero=1"}},
                       {{"--compression.gather=int8"}},
                       {kTensor + Words{"--compression.gather=int8", "--parallel.zero=3"}},
                       {topk + Words{"--precision.compute=float16"}},
                       {topk + Words{"--precision.gradients=compute"}},
                       {topk + kTensor},
                       {topk + Words{"--checkpoint.spread=false"}},
                       {untied + topk},
                       {{"--compression.method=dgc"}},
                       {onebit + Words{"--optimizer.kind=sgd"}},
                       {onebit + Words{"--parallel.zero=1"}},
                       {onebit + Words{"--train.clip=1"}},
                       {onebit + Words{"--compression.warmup_steps=0"}},
                       {local + server},
                       {local + kPipeline},
                       {local + kTensor},
                       {local + Words{"--parallel.zero=1"}},
                       {local + topk},
                       {local + Words{"--precision.gradients=compute"}},
                       {{"--local.method=diloco", "--local.format=int8", "--checkpoint.spread=false"}},
                       {adasum + kPipeline},
                       {adasum + kTensor},
                       {adasum + Words{"--parallel.zero=1"}},
                       {adasum + topk},
                       {adasum + Words{"--precision.gradients=compute"}},
                       {server + Words{"--parallel.zero=1"}},
                       {server + untied},
                       {server + Words{"--compression.method=powersgd"}},
                       {server + kFp8},
                       {server + Words{"--precision.gradients=compute"}},
                       {server + Words{"--server.replicate"}},
                       {rows + Words{"--model=mlp"}},
                       {rows},
                       {rows + kTensor + Words{"--model.tied=false"}}});
}

TEST(Compatibility, RulesNameKeys) {
  for (const RuleScope scope : {RuleScope::kEveryTraining, RuleScope::kThisTrainer}) {
    for (const Rule& rule : rules(scope)) {
      for (const Condition& condition : {rule.one, rule.other}) {
        EXPECT_NO_THROW(find_key(condition.key, "the table")) << condition.key;
        EXPECT_FALSE(condition.says.empty()) << condition.key;
      }
      EXPECT_NE(rule.one.key, rule.other.key) << "a key alone is for the table of keys: " << rule.reason;
      EXPECT_FALSE(rule.cure.empty()) << rule.reason;
    }
  }
}

}  // namespace
}  // namespace trireme
