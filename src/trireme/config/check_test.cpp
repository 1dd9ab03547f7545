#include "trireme/config/check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/compress/method.h"
#include "trireme/config/batch_plan.h"
#include "trireme/config/compression.h"
#include "trireme/config/pipeline.h"
#include "trireme/config/resolve.h"
#include "trireme/program/reduction_tree.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {
namespace {

using Arguments = std::vector<std::string>;

Config config_of(Arguments arguments) {
  ConfigSources sources;
  sources.arguments = std::move(arguments);
  return resolve(sources);
}

std::string error_of(Arguments arguments, int64_t world_size = 1) {
  try {
    check(config_of(std::move(arguments)), world_size);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Check, SplitsTheBatch) {
  const Arguments arguments = {"--train.global_batch=48", "--train.micro_batch=2"};
  for (const auto& [workers, accumulation] : {std::pair{1, 24}, {4, 6}}) {
    const Layout layout = check(config_of(arguments), workers);
    EXPECT_EQ(layout.global_batch, 48);
    EXPECT_EQ(layout.micro_batch, 2);
    EXPECT_EQ(layout.micro_batches(), 24);
    EXPECT_EQ(layout.leaves, 8);
    EXPECT_EQ(layout.dp, workers);
    EXPECT_EQ(layout.accumulation(), accumulation);
    EXPECT_TRUE(layout.batch_parts.empty());
  }
}

TEST(Check, FillsInWhatFollows) {
  const Config config = config_of({});
  const Config filled = with_layout(config, check(config, 2));
  EXPECT_EQ(filled.parallel.dp, 2);
  EXPECT_EQ(filled.train.leaves, 8);
  EXPECT_EQ(filled.origins.of("parallel.dp"), "derived");
  EXPECT_EQ(filled.origins.of("train.leaves"), "derived");
  const Config set = config_of({"--parallel.dp=2", "--train.leaves=2"});
  EXPECT_EQ(with_layout(set, check(set, 2)).origins.of("train.leaves"), "command line");
}

TEST(Check, TrainerDecidesWhatIsLeftToTheSoftware) {
  const ParallelConfig decided = with_trainer_choices(config_of({})).parallel;
  EXPECT_EQ(decided.overlap, Overlap::kOn);
  EXPECT_EQ(decided.zero_accumulation, ZeroAccumulation::kWhole);
  const Config given =
      config_of({"--parallel.overlap=false", "--parallel.zero=2", "--parallel.zero_accumulation=shares"});
  EXPECT_EQ(with_trainer_choices(given), given);
}

TEST(Check, LeavesDoNotDependOnDp) {
  for (int64_t micro_batches = 1; micro_batches <= 200; ++micro_batches) {
    const int64_t leaves = derived_leaves(micro_batches);
    ASSERT_EQ(micro_batches % leaves, 0);
    ASSERT_LE(leaves, 8);
    for (int64_t more = leaves + 1; more <= 8; ++more) ASSERT_NE(micro_batches % more, 0);
  }
}

TEST(Check, BatchesThatCannotBeSplit) {
  EXPECT_EQ(error_of({"--train.global_batch=100", "--train.micro_batch=1", "--parallel.dp=8"}, 8),
            "train.global_batch = 100 cannot be split over dp = 8 (parallel.dp, from the command line)\n"
            "  nearest train.global_batch: 96 or 104; or dp = 1 or 5 works as it is");
  EXPECT_EQ(
      error_of({"--train.global_batch=102"}),
      "train.global_batch = 102 is not a number of micro-batches of 4 (train.micro_batch, from the preset default)\n"
      "  nearest train.global_batch: 100 or 104");
  EXPECT_EQ(error_of({"--train.global_batch=3"}),
            "train.global_batch = 3 is less than one micro-batch of 4 (train.micro_batch, from the preset default)\n"
            "  set train.micro_batch to 3 or less");
  EXPECT_EQ(
      error_of({}, 16),
      "train.global_batch = 32 is 8 micro-batches of 4 (train.micro_batch, from the preset default), which cannot be "
      "split over dp = 16 (parallel.dp, the default)\n  set train.micro_batch = 2; or dp = 1, 2, 4 or 8 works as it "
      "is");
  EXPECT_EQ(error_of({"--train.global_batch=12", "--train.micro_batch=1"}, 4),
            "train.leaves = 6 (derived) cannot be split over dp = 4 (parallel.dp, the default)\n"
            "  train.leaves = 4 or 12 would work; or nearest train.global_batch: 8 or 16; or dp = 1, 2, 3 or 6 works "
            "as it is; "
            "leaves are part of what fixes the numbers: another count changes their last bits");
  EXPECT_EQ(
      error_of({"--train.global_batch=12", "--train.micro_batch=1", "--train.leaves=5"}, 2),
      "train.leaves = 5 (from the command line) does not divide the 12 micro-batches of a step\n"
      "  train.leaves = 2, 4, 6 or 12 would work; leaves are part of what fixes the numbers: another count changes "
      "their last bits");
  EXPECT_EQ(
      error_of({"--train.global_batch=32", "--train.micro_batch=1"}, 16),
      "train.leaves = 8 (derived) cannot be split over dp = 16 (parallel.dp, the default)\n"
      "  train.leaves = 16 or 32 would work; or dp = 1, 2, 4 or 8 works as it is; leaves are part of what fixes the "
      "numbers: another count changes their last bits");
}

/// "1, 2 or 4" behind `words`; none where the text does not have them.
std::vector<int64_t> numbers_after(const std::string& text, const std::string& words) {
  std::vector<int64_t> numbers;
  size_t at = text.find(words);
  if (at == std::string::npos) return numbers;
  for (at += words.size(); std::isdigit(static_cast<unsigned char>(text[at]));) {
    size_t length = 0;
    numbers.push_back(std::stoll(text.substr(at), &length));
    at += length;
    at += text.compare(at, 2, ", ") == 0 ? 2 : text.compare(at, 4, " or ") == 0 ? 4 : 0;
    if (at >= text.size()) break;
  }
  return numbers;
}

TEST(Check, BatchPartsAreNumbersOfLeaves) {
  Config config;
  config.train.global_batch = 24;
  config.train.micro_batch = 1;
  config.train.leaves = 12;
  config.parallel.shares = "3, 1";
  const Layout layout = plan_batch(config, 2);
  EXPECT_EQ(layout.leaves_of_replicas(), (std::vector<int64_t>{9, 3}));
  EXPECT_EQ(layout.accumulation(), 18);
  const auto refusal = [&](const char* batch_parts, int64_t dp) -> std::string {
    config.parallel.shares = batch_parts;
    try {
      plan_batch(config, dp);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal("3,1", 3).find("has 2 shares, and there are 3 replicas"), std::string::npos);
  EXPECT_NE(refusal("3,x", 2).find("\"x\" is no share"), std::string::npos);
  EXPECT_NE(refusal("3,0", 2).find("\"0\" is no share"), std::string::npos);
  EXPECT_NE(refusal("3,", 2).find("\"\" is no share"), std::string::npos);
  EXPECT_NE(refusal("99999999999999999999,1", 2).find("is no share"), std::string::npos);
  const std::string parts = refusal("5,3", 2);
  EXPECT_NE(parts.find("are 8 parts, and train.leaves = 12"), std::string::npos) << parts;
  const std::vector<int64_t> proposed = numbers_after(parts.substr(parts.find("split into")), "train.leaves = ");
  EXPECT_FALSE(proposed.empty()) << parts;
  for (const int64_t leaves : proposed) {
    config.train.leaves = leaves;
    EXPECT_NO_THROW(plan_batch(config, 2)) << leaves;
  }
}

/// Every plan keeps its promise, and every number that a message proposes works.
TEST(Check, ProposalsWork) {
  int refused = 0, proposals = 0, others = 0;
  for (int64_t batch = 1; batch <= 60; ++batch) {
    for (int64_t micro = 1; micro <= 9; ++micro) {
      for (int64_t dp = 1; dp <= 9; ++dp) {
        for (const int64_t leaves : {0, 1, 4, 6}) {
          Config config;
          config.train.global_batch = batch;
          config.train.micro_batch = micro;
          config.train.leaves = leaves;
          try {
            const Layout plan = plan_batch(config, dp);
            ASSERT_EQ(plan.micro_batch * plan.micro_batches(), batch);
            ASSERT_EQ(plan.accumulation() * dp, plan.micro_batches());
            ASSERT_EQ(plan.micro_batches() % plan.leaves, 0);
            ASSERT_EQ(plan.leaves % dp, 0);
          } catch (const UsageError& error) {
            ++refused;
            const std::string text = error.what();
            for (const int64_t other : numbers_after(text, "or dp = ")) {
              ++others;
              ASSERT_NO_THROW(plan_batch(config, other)) << text;
            }
            for (const int64_t other : numbers_after(text, "nearest train.global_batch: ")) {
              ++proposals;
              config.train.global_batch = other;
              ASSERT_NO_THROW(plan_batch(config, dp)) << text;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(proposals, 1000);
  EXPECT_GT(others, 1000);
}

TEST(Check, Workers) {
  EXPECT_EQ(error_of({"--parallel.dp=4"}, 2),
            "parallel.dp = 4 (from the command line) needs 4 workers, but there are 2\n"
            "  start 4 workers (--nproc 4 on one machine), or leave parallel.dp at -1: the rest");
  EXPECT_EQ(
      error_of({"--parallel.dp=0"}),
      "parallel.dp = 0 (from the command line) is not a number of workers\n  1 or more; -1 is the rest of the workers");
  const Config config = config_of({"--parallel.tp=2", "--parallel.pp=2"});
  EXPECT_EQ(check_sizes(config, 8).dp, 2);
  EXPECT_THROW(check_sizes(config, 6), UsageError);
  EXPECT_THROW(check_sizes(config, 0), UsageError);
  EXPECT_THROW(check_sizes(config_of({"--parallel.tp=-1"}), 2), UsageError);
  const Arguments huge = {"--parallel.dp=1e6", "--parallel.tp=1e6", "--parallel.pp=1e6", "--parallel.cp=1e6"};
  EXPECT_THROW(check_sizes(config_of(huge), 1), UsageError);
}

TEST(Check, TensorParallelism) {
  EXPECT_EQ(error_of({"--parallel.tp=2"}, 2), "no error");
  EXPECT_EQ(error_of({"--model.heads=4", "--model.hidden=48", "--parallel.tp=3"}, 3),
            "model.heads = 4 cannot be split over parallel.tp = 3\n"
            "  attention is cut by heads: choose a tp that divides them");
  const Arguments llama = {"--model=llama-tiny", "--model.heads=12", "--model.hidden=48", "--model.kv_heads=4"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), llama.begin(), llama.end());
    return more;
  };
  EXPECT_NE(error_of(with({"--parallel.tp=6"}), 6).find("model.kv_heads = 4 cannot be split"), std::string::npos);
  EXPECT_EQ(error_of(with({"--parallel.tp=12"}), 12), "no error");
  EXPECT_NE(error_of({"--parallel.sequence"}, 2).find("set parallel.tp to 2 or more"), std::string::npos);
  EXPECT_NE(error_of({"--model=mlp", "--parallel.tp=2", "--parallel.sequence"}, 2).find("is for gpt2 and llama"),
            std::string::npos);
}

TEST(Check, Pipelines) {
  EXPECT_EQ(error_of({"--parallel.pp=2", "--model.layers=4"}, 2), "no error");
  EXPECT_EQ(error_of({"--parallel.pp=2", "--parallel.dp=2", "--parallel.tp=2", "--parallel.schedule=zb-v"}, 8),
            "no error");
  EXPECT_EQ(
      error_of({"--parallel.pp=7", "--model.layers=4"}, 7),
      "parallel.pp = 7 (from the command line) with parallel.schedule = \"1f1b\" (the default) needs 7 stages, but "
      "the model has 6 layers to cut between\n  set parallel.pp to 6 or less");
  const auto refuses = [](const Arguments& words, int workers, const char* why) {
    EXPECT_NE(error_of(words, workers).find(why), std::string::npos)
        << words.back() << ": " << error_of(words, workers);
  };
  refuses({"--model=resnet18", "--parallel.pp=11"}, 11, "has 10 layers to cut between");
  refuses({"--model=mlp", "--model.layers=2", "--parallel.pp=2", "--parallel.schedule=zb-v"}, 2, "needs 4 stages");
  refuses({"--parallel.pp=2", "--parallel.schedule=gpipe", "--parallel.interleave=2"}, 2,
          "set the schedule to interleaved");
  refuses({"--parallel.split=4,4"}, 2, "set parallel.pp to their number");
  EXPECT_EQ(error_of({"--parallel.pp=2", "--model.layers=4", "--parallel.split=1+5"}, 2), "no error");
  refuses({"--parallel.pp=2", "--model.layers=4", "--parallel.split=4,4"}, 2,
          "'4' in the split 4,4 goes beyond the last layer, 5");
  refuses({"--parallel.pp=2", "--model.layers=4", "--parallel.split=2,3"}, 2, "the split 2,3 covers 5 of 6 layers");
  refuses({"--parallel.pp=2", "--model.layers=4", "--parallel.split=0,6"}, 2, "'0' in the split 0,6 has no layers");
  refuses({"--parallel.pp=2", "--model.layers=4", "--parallel.split=2,2,2"}, 2,
          "name the layers of 2 stages, of 0 to 5");
  refuses({"--parallel.pp=2", "--model.layers=4", "--parallel.split=3,3", "--parallel.schedule=zb-v"}, 2,
          "has 2 stages, and on 2 workers there are 4 with parallel.schedule = \"zb-v\"");
  refuses({"--model=resnet18", "--parallel.pp=2", "--parallel.split=4,7"}, 2, "goes beyond the last layer, 9");
  refuses({"--parallel.pp=2", "--parallel.schedule=zb-h1", "--train.recompute=selective"}, 2,
          "train.recompute to full");
  refuses({"--parallel.pp=2", "--parallel.update_every=2"}, 2, "leave it at 0");
  refuses({"--parallel.pp=2", "--parallel.schedule=pipedream", "--train.clip=1"}, 2, "set train.clip = 0");
}

/// Files of schedules for a model of six layers, in a folder of their own.
class OwnSchedules : public testing::Test {
 protected:
  ~OwnSchedules() override { std::filesystem::remove_all(folder_); }

  std::string error_with(const std::string& csv, Arguments more, int workers = 2) {
    const std::string path = folder_ + "/mine.csv";
    std::ofstream(path) << csv;
    Arguments words = {"--model.layers=4", "--train.global_batch=4", "--train.micro_batch=2", "--parallel.pp=2",
                       "--parallel.schedule=" + path};
    words.insert(words.end(), more.begin(), more.end());
    return error_of(words, workers);
  }
  void refuses(const std::string& csv, const Arguments& more, const std::string& why, int workers = 2) {
    const std::string error = error_with(csv, more, workers);
    EXPECT_NE(error.find(why), std::string::npos) << error;
  }

  const std::string folder_ = [] {
    std::string name = testing::TempDir() + "trireme-schedules-XXXXXX";
    return std::string(mkdtemp(name.data()));
  }();
};

TEST_F(OwnSchedules, ThatFitAreTaken) {
  const std::string good = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  EXPECT_EQ(error_with(good, {}), "no error");
  EXPECT_EQ(error_with(good, {"--train.recompute=selective"}), "no error");
  EXPECT_EQ(error_with(good, {"--train.recompute=full", "--train.global_batch=8"}, 4), "no error");
  EXPECT_EQ(error_with("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", {"--train.micro_batch=4"}),
            "no error");
}

TEST_F(OwnSchedules, ThatDoNotAreRefused) {
  const std::string good = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", halves = "0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1B1\n";
  refuses("0F0,0G0\n1F0,1B0\n", {}, "mine.csv: row 1, column 2: '0G0' has the unknown action 'G'");
  refuses("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n", {}, "would hang");
  refuses("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1F1,1B1\n", {}, "Forward stage 1 micro-batch 1");
  refuses("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n", {"--train.micro_batch=4"}, "has not sent");
  refuses(good + "2F0,2B0,2F1,2B1\n", {}, "set parallel.pp = 3");
  refuses("0F0,0B0,0F1,0B1\n", {}, "has one row");
  refuses(good, {"--train.global_batch=12"}, "set train.global_batch = 4, or train.micro_batch = 6");
  refuses(good, {"--train.global_batch=4", "--train.micro_batch=4"}, "set train.global_batch = 8");
  refuses(good, {"--parallel.pp=1"}, "set parallel.pp to the number of its rows", 1);
  refuses(good, {"--parallel.interleave=2"}, "is not for parallel.schedule");
  refuses(good, {"--parallel.update_every=1"}, "leave it at 0");
  refuses(halves, {"--train.recompute=selective"}, "train.recompute to full");
  refuses(halves, {"--parallel.zero=3", "--train.global_batch=8"}, "parallel.zero = 2", 4);
  refuses("0F0,2F0,2B0,0B0\n1F0,1B0\n", {"--train.micro_batch=4", "--model=mlp", "--model.layers=1"}, "has 2 layers");
  refuses("0F0,2F0,2B0,0B0\n1F0,1B0\n", {"--train.micro_batch=4", "--parallel.split=3,3"}, "there are 3 with");
  refuses("", {}, "the schedule is empty");
  EXPECT_NE(error_of({"--parallel.pp=2", "--parallel.schedule=no/such"}, 2).find("there is no file no/such"),
            std::string::npos);
}

TEST(Check, Compression) {
  EXPECT_EQ(error_of({"--compression.method=topk"}, 2), "no error");
  EXPECT_NE(error_of({"--compression.method=qsgd", "--compression.bits=3"}, 2).find("1, 2, 4 or 8"), std::string::npos);
  EXPECT_EQ(
      error_of({"--compression.method=qsgd", "--compression.error_feedback=on"}, 2),
      "compression.error_feedback = \"on\" (from the command line) does not go with compression.method = \"qsgd\" "
      "(from the command line)\n  leave it at its default: stochastic rounding is right on average, and its error "
      "may be larger than the value, so residuals would grow");
  EXPECT_EQ(error_of({"--compression.bits=3"}, 2), "no error") << "a setting of another method";
  EXPECT_NE(error_of({"--compression.method=sign", "--precision.compute=float16"}, 2).find("use bfloat16"),
            std::string::npos);
  EXPECT_NE(error_of({"--compression.method=dgc"}, 2).find("optimizer.momentum = 0"), std::string::npos);
  const Arguments sgd = {"--compression.method=dgc", "--optimizer.kind=sgd", "--optimizer.momentum=0"};
  EXPECT_EQ(error_of(sgd, 2), "no error");
  EXPECT_NE(error_of({sgd[0], sgd[1], "--optimizer.momentum=0.9"}, 2).find("optimizer.momentum = 0"),
            std::string::npos);
}

// What the table of keys allows, the methods take: else it would fail only where workers start.
TEST(Check, CompressionTakesWhatItsKeysAllow) {
  check(CompressionOptions{.method = Method::kPowerSgd, .rank = 256});
  check(CompressionOptions{.method = Method::kDgc, .momentum = 0.999999f});
  for (const std::string_view name : all_names<Method>()) {
    for (const bool on : {false, true}) {
      Config config;
      config.compression.method = named<Method>(name).value();
      config.compression.error_feedback = on ? ErrorFeedback::kOn : ErrorFeedback::kOff;
      if (feedback_of(config.compression.method) == (on ? Feedback::kHarmful : Feedback::kAlways)) {
        EXPECT_THROW(check_compression(config), UsageError) << name << ", on " << on;
      } else {
        EXPECT_NO_THROW(check_compression(config)) << name << ", on " << on;
      }
    }
  }
  const auto resolves = [](const char* argument) { return config_of({argument}); };
  EXPECT_EQ(resolves("--compression.rank=256").compression.rank, 256);
  EXPECT_NE(error_of({"--compression.method=topkk"}).find("did you mean \"topk\"?"), std::string::npos);
  for (const char* wrong : {"--compression.rank=0", "--compression.rank=257", "--compression.momentum=1"}) {
    EXPECT_THROW(resolves(wrong), UsageError) << wrong;
  }
}

TEST(Check, Offload) {
  EXPECT_EQ(error_of({"--parallel.offload=folder"}, 2), "no error");
  EXPECT_EQ(error_of({"--parallel.offload=folder", "--train.device=cuda"}, 2), "no error");
  EXPECT_EQ(error_of({"--parallel.offload=memory", "--train.device=cuda", "--parallel.zero=3"}, 2), "no error");
  EXPECT_NE(error_of({"--parallel.offload=memory"}, 2).find("or name a folder"), std::string::npos);
  const Arguments weights = {"--parallel.offload_weights", "--parallel.zero=3", "--parallel.offload=folder"};
  EXPECT_EQ(error_of(weights, 2), "no error");
  EXPECT_EQ(error_of(weights, 1), "no error");
  EXPECT_NE(error_of({weights[0], weights[2]}, 2).find("set parallel.zero = 3"), std::string::npos);
  EXPECT_NE(error_of({weights[0], weights[1]}, 2).find("name a folder"), std::string::npos);
  const Arguments signs = {"--compression.method=onebit_adam", "--train.clip=0", "--compression.warmup_steps=5",
                           "--train.device=cuda"};
  EXPECT_EQ(error_of(signs, 2), "no error");
  Arguments both = signs;
  both.push_back("--parallel.offload=memory");
  EXPECT_NE(error_of(both, 2).find("compression.method = \"sign\""), std::string::npos);
}

TEST(Check, WhatParameterServersCannotTrain) {
  const auto error = [](const Arguments& more, int workers = 2) {
    Arguments arguments = {"--parallel.aggregation=server"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return error_of(arguments, workers);
  };
  const auto refuses = [&](const Arguments& more, const std::string& says, int workers = 2) {
    EXPECT_NE(error(more, workers).find(says), std::string::npos) << more[0] << ": " << error(more, workers);
  };
  EXPECT_EQ(error({}), "no error");
  EXPECT_EQ(error({"--parallel.pp=2", "--parallel.tp=2"}, 8), "no error");
  for (const char* method : {"topk", "qsgd", "int8", "bfloat16", "sign"}) {
    EXPECT_EQ(error({std::string("--compression.method=") + method, "--parallel.tp=2"}, 4), "no error") << method;
  }
  EXPECT_EQ(error({"--server.replicate", "--server.count=2"}), "no error");
  EXPECT_EQ(error({"--server.rows", "--model.tied=false", "--parallel.pp=2"}, 4), "no error");

  refuses({"--parallel.zero=1"}, "set parallel.zero = 0");
  refuses({"--parallel.pp=2", "--parallel.schedule=pipedream", "--train.clip=0", "--model.tied=false"}, "such as 1f1b");
  refuses({"--compression.method=powersgd"}, "compression.method = \"powersgd\"");
  refuses({"--compression.method=onebit_adam", "--train.clip=0", "--compression.warmup_steps=5"},
          "compression.method = \"onebit_adam\"");
  EXPECT_EQ(error({"--train.device=cuda"}), "no error");
  refuses({"--train.device=cuda", "--precision.compute=bfloat16", "--precision.matmul=fp8"},
          "set precision.matmul = \"compute\"");
  refuses({"--precision.gradients=compute"}, "set precision.gradients = \"float32\"");
  refuses({"--server.replicate"}, "set server.count = 2");
  refuses({"--server.rows"}, "set model.tied = false");
  refuses({"--server.rows", "--model=mlp"}, "gpt2 and llama");
  refuses({"--server.rows", "--model.tied=false", "--parallel.tp=2"}, "set parallel.tp = 1", 4);
}

TEST(Check, WhatTakesThePlaceOfAnAllReduce) {
  const auto refuses = [](Arguments arguments, const Arguments& more, const std::string& says) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    const std::string error = error_of(arguments, 2);
    EXPECT_NE(error.find(says), std::string::npos) << arguments[0] << " " << more[0] << ": " << error;
  };
  const Arguments adasum = {"--parallel.aggregation=adasum"}, local = {"--local.method=average", "--local.every=4"};
  for (const Arguments& way : {adasum, local}) {
    EXPECT_EQ(error_of(way, 2), "no error") << way[0];
    refuses(way, {"--parallel.pp=2"}, "set parallel.pp = 1");
    refuses(way, {"--parallel.tp=2"}, "set parallel.tp = 1");
    refuses(way, {"--parallel.zero=1"}, "set parallel.zero = 0");
    refuses(way, {"--compression.method=int8"}, "set compression.method = \"none\"");
    refuses(way, {"--precision.gradients=compute"}, "set precision.gradients = \"float32\"");
  }
  refuses(local, {"--parallel.aggregation=server"}, "set parallel.aggregation = \"average\"");
  refuses(local, adasum, "set parallel.aggregation = \"average\"");
  refuses({"--local.method=diloco", "--local.format=int8"}, {"--checkpoint.spread=false"},
          "set checkpoint.spread = true");
  refuses(local, {"--checkpoint.every=6"}, "nearest checkpoint.every: 4 or 8");
  refuses(local, {"--checkpoint.every=8", "--local.after=5"}, "local.after = 5");
  EXPECT_EQ(error_of({local[0], local[1], "--checkpoint.every=8"}, 2), "no error");
}

// The names that `schedule`, `simulate` and docs/programs.md print are those that train takes.
TEST(Check, EveryNameOfAScheduleTrains) {
  const auto stages_of = [](const std::string& name, int64_t rounds) {
    const Config config = config_of({"--parallel.pp=2", "--parallel.schedule=" + name, "--train.clip=0",
                                     "--model.tied=false", fmt::format("--parallel.interleave={}", rounds)});
    return schedule_of(check(config, 2)).num_stages();
  };
  for (const std::string_view each : schedule_names()) {
    const std::string name(each);
    const ScheduleKind kind = schedule_kind(name);
    EXPECT_EQ(stages_of(name, 1), 2 * stages_per_rank(kind)) << name;
    if (!takes_interleave(kind)) continue;
    EXPECT_EQ(stages_of(name, 3), 6) << name;
  }
  EXPECT_EQ(stages_of("1f1b", 1), 2);
  EXPECT_EQ(stages_of("interleaved", 1), 4);
  EXPECT_EQ(stages_of("zb-v", 1), 4);
}

TEST(Check, WhatThisVersionCannotDo) {
  EXPECT_EQ(
      error_of({"--parallel.cp=2"}, 2),
      "parallel.cp = 2: context parallelism is not in this version\n  it came from the command line; only 1 works");
  for (const char* argument : {"--parallel.cp=2", "--parallel.ep=2", "--parallel.plan=auto"}) {
    EXPECT_NE(error_of({argument}, 2).find("is not in this version"), std::string::npos) << argument;
  }
}

TEST(Check, WhatIsComputedAgain) {
  for (const char* way : {"none", "full", "selective", "0", "1-3"}) {
    EXPECT_EQ(error_of({"--model.layers=4", std::string("--train.recompute=") + way}), "no error") << way;
  }
  EXPECT_NE(error_of({"--train.recompute=half"}).find("is not what can be computed again"), std::string::npos);
  EXPECT_NE(error_of({"--train.recompute=2-9"}).find("names a layer that is not there with model.layers"),
            std::string::npos);
  EXPECT_NE(error_of({"--model=mlp", "--train.recompute=selective"}).find("computes attention again"),
            std::string::npos);
}

TEST(Check, ProductsInEightBits) {
  const Arguments fp8 = {"--precision.matmul=fp8", "--precision.compute=bfloat16", "--train.device=cuda"};
  const auto with = [&](const char* word) {
    Arguments all = fp8;
    all.push_back(word);
    return error_of(all);
  };
  EXPECT_EQ(error_of(fp8), "no error");
  EXPECT_NE(with("--train.device=cpu").find("needs a GPU"), std::string::npos);
  EXPECT_NE(with("--precision.compute=float16").find("stands beside bfloat16"), std::string::npos);
  EXPECT_NE(with("--model=mlp").find("is for gpt2 and llama"), std::string::npos);
}

TEST(Check, Contradictions) {
  EXPECT_EQ(
      error_of({"--model.hidden=130"}),
      "model.hidden = 130 (from the command line) cannot be split over model.heads = 4 (from the preset default)\n"
      "  nearest model.hidden: 128 or 132; nearest model.heads: 2 or 5");
  EXPECT_NE(error_of({"--model=llama-tiny", "--model.kv_heads=3"}).find("cannot be split over model.kv_heads = 3"),
            std::string::npos);
  EXPECT_NE(error_of({"--model=llama-tiny", "--model.hidden=60"}).find("heads of an odd width"), std::string::npos);
  EXPECT_NE(error_of({"--model=resnet18", "--model.depth=19"}).find("is not a ResNet"), std::string::npos);
  EXPECT_EQ(
      error_of({"--optimizer.warmup_steps=601"}),
      "optimizer.warmup_steps = 601 (from the command line) is more than train.steps = 600 (from the preset default)\n"
      "  set it to 600 or less");
  EXPECT_NE(error_of({"--optimizer.schedule=step"}).find("optimizer.step_every = 0"), std::string::npos);
  EXPECT_EQ(error_of({"--optimizer.schedule=step", "--optimizer.step_every=5"}), "no error");
  EXPECT_NE(error_of({"--optimizer.kind=sgd", "--optimizer.nesterov", "--optimizer.momentum=0"}).find("momentum"),
            std::string::npos);
  EXPECT_NE(error_of({"--data.kind=text"}).find("needs files"), std::string::npos);
  EXPECT_NE(error_of({"--data.kind=generated", "--data.path=x"}).find("reads no files"), std::string::npos);
  EXPECT_NE(error_of({"--data.kind=images", "--data.path=x"}).find("cannot train"), std::string::npos);
  EXPECT_NE(error_of({"--model=mlp", "--data.kind=text", "--data.path=x"}).find("cannot train"), std::string::npos);
  EXPECT_NE(error_of({"--model.vocab=100", "--data.kind=text", "--data.path=x"}).find("256 bytes"), std::string::npos);
  EXPECT_NE(error_of({"--observe.name=../x"}).find("is not the name of a folder"), std::string::npos);
  EXPECT_EQ(error_of({"--data.path=my.txt"}), "no error");
}

}  // namespace
}  // namespace trireme
