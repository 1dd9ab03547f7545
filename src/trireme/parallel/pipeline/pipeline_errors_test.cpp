#include <gtest/gtest.h>

#include "trireme/parallel/pipeline/pipeline.h"
#include "trireme/parallel/pipeline/pipeline_test_util.h"
#include "trireme/tensor/recompute.h"

namespace trireme {
namespace {

using torch::nn::Linear;
using torch::nn::Sequential;

/// What each rank throws, or "".
std::vector<std::string> errors_of(int num_ranks, const std::function<void(World&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(num_ranks));
  try {
    run_as_threads(num_ranks, [&](World& world) {
      at::set_num_threads(1);
      try {
        body(world);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(world.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception&) {
    // Kept above, rank by rank.
  }
  return errors;
}

void expect_words(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
}

/// All ranks throw it in the constructor.
void expect_refused(int num_ranks, Sequential model, const PipelineOptions& options,
                    const std::vector<std::string>& words) {
  for (const std::string& error : errors_of(num_ranks, [&](World& world) {
         EXPECT_THROW(
             {
               try {
                 Pipeline(world.comm(), model, options);
               } catch (const UsageError& error) {
                 expect_words(error.what(), words);
                 throw;
               }
             },
             UsageError);
       })) {
    EXPECT_EQ(error, "");
  }
}

TEST(PipelineErrors, WhatCannotBeIsRefusedAtOnce) {
  Sequential two(Linear(4, 4), Linear(4, 3));
  expect_refused(3, two, {.num_micro_batches = 4}, {"3", "2", "layers"});
  expect_refused(2, two, {.schedule = "interleaved", .num_micro_batches = 4}, {"4", "2", "layers"});
  expect_refused(3, small_model(), {.num_micro_batches = 4, .num_replicas = 2}, {"3 ranks cannot be 2 replicas"});
  expect_refused(2, two, {.schedule = "pipedream", .num_micro_batches = 4, .update_every = 3}, {"4", "updates of 3"});
  const Linear tied(4, 4);
  expect_refused(2, Sequential(tied, tied), {.schedule = "pipedream", .num_micro_batches = 4},
                 {"stages 0 and 1 share 0.weight", "pipedream", "synchronous"});
  expect_refused(2, two, {.schedule = "1f2b"}, {"1f2b", "1f1b"});
  expect_refused(2, small_model(), {.split = "4,4,4"}, {"4,4,4 has 3 stages", "has 2"});
  expect_refused(2, two, {.costs = {1, 2, 3}}, {"3 costs for 2 layers"});
  expect_refused(2, two, {.recompute = {true, false, true}}, {"3 values of recompute for 2 stages"});
  expect_refused(2, two, {.num_micro_batches = 0}, {"micro-batches"});
  expect_refused(2, two, {.num_micro_batches = 4, .num_leaves = 3}, {"4", "3", "leaves"});
}

TEST(PipelineErrors, RanksThatDisagreeAllSaySo) {
  for (const std::string& error : errors_of(2, [](World& world) {
         Pipeline(world.comm(), small_model(), {.schedule = world.rank() == 0 ? "gpipe" : "1f1b"});
       })) {
    expect_words(error, {"the pipeline of rank 1 differs from rank 0's", "1f1b", "gpipe"});
  }
}

/// A step on two ranks, of eight samples in four micro-batches.
std::vector<std::string> errors_of_steps(const std::function<Sequential()>& make_model, PipelineOptions options,
                                         const std::vector<int64_t>& batches = {8},
                                         const Pipeline::Loss& loss = loss_of) {
  options.num_micro_batches = 4;
  return errors_of(2, [&](World& world) {
    Pipeline pipeline(world.comm(), make_model(), options);
    for (const int64_t samples : batches) {
      const Batch batch = batch_of(0, samples);
      pipeline.step(batch.input, batch.target, loss);
    }
  });
}

/// Its n-th call is special.
struct FussyImpl : torch::nn::Module {
  FussyImpl(int call_, bool throws_) : call(call_), throws(throws_) {}
  torch::Tensor forward(const torch::Tensor& x) {
    if (calls++ != call) return x * 1;
    if (throws) throw std::runtime_error("this layer is fussy");
    return x.narrow(0, 1, 1) * 1;
  }
  int call, calls = 0;
  bool throws;
};
TORCH_MODULE(Fussy);

TEST(PipelineErrors, ShapesThatChangeAreNamedWithStageAndMicroBatch) {
  const auto fussy = [] { return Sequential(Linear(4, 5), Fussy(2, false), Linear(5, 3)); };
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const auto errors = errors_of_steps(fussy, {.schedule = schedule, .split = "2,1"});
    expect_words(errors[0], {"rank 0 of the pipeline", "Forward stage 0 micro-batch 2",
                             "stage 0 gives [1, 5] Float for micro-batch 2, and gave [2, 5] Float"});
    EXPECT_NE(errors[1], "");
  }
  const auto plain = [] { return Sequential(Linear(4, 5), Linear(5, 3)); };
  const auto errors = errors_of_steps(plain, {}, {8, 8, 16});
  expect_words(errors[0], {"stage 0 gives [4, 5] Float for micro-batch 0, and gave [2, 5] Float"});
}

TEST(PipelineErrors, ALayerThatThrowsIsNamedAndTheOthersDoNotHang) {
  const auto late = [] { return Sequential(Linear(4, 5), Linear(5, 3), Fussy(3, true)); };
  for (const std::string schedule : {"gpipe", "1f1b", "zb-h2"}) {
    const auto errors = errors_of_steps(late, {.schedule = schedule, .split = "1,2"});
    expect_words(errors[1], {"rank 1 of the pipeline, step 0, Forward stage 1 micro-batch 3", "this layer is fussy"});
    expect_words(errors[0], {"rank 0 of the pipeline, step 0, ", "stage 0 micro-batch"});
  }
}

TEST(PipelineErrors, BatchesAndLosses) {
  const auto plain = [] { return Sequential(Linear(4, 5), Linear(5, 3)); };
  expect_words(errors_of_steps(plain, {}, {10})[0], {"a batch of 10 cannot be cut into 4 micro-batches"});
  const auto per_sample = [](const torch::Tensor& y, const torch::Tensor& t) { return (y - t).square().mean(1); };
  expect_words(errors_of_steps(plain, {}, {8}, per_sample)[1], {"the loss is [2] Float, and must be a scalar"});
  const auto mismatch = [](const torch::Tensor& y, const torch::Tensor&) { return torch::mm(y, y).sum(); };
  expect_words(errors_of_steps(plain, {}, {8}, mismatch)[1], {"Forward stage 1 micro-batch 0", "mat1 and mat2"});
  const auto errors = errors_of(1, [&](World& world) {
    Pipeline pipeline(world.comm(), plain(), {});
    pipeline.step(batch_of(0, 4).input, {}, loss_of);
  });
  expect_words(errors[0], {"the target of the batch is missing"});
}

struct InPlaceImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x.mul_(2); }
};
TORCH_MODULE(InPlace);

TEST(PipelineErrors, AStageThatChangesItsInputCannotBeComputedAgain) {
  const auto in_place = [] { return Sequential(Linear(4, 5), InPlace(), Linear(5, 3)); };
  const PipelineOptions options{.schedule = "gpipe", .split = "1,2", .recompute = {true}};
  expect_words(errors_of_steps(in_place, options)[1], {"Forward stage 1 micro-batch 0", "changes its input"});
}

struct RecomputedImpl : torch::nn::Module {
  RecomputedImpl() { register_module("linear", linear); }
  torch::Tensor forward(const torch::Tensor& x) {
    return recompute([this](const torch::Tensor& z) { return linear->forward(z); }, x);
  }
  Linear linear{5, 5};
};
TORCH_MODULE(Recomputed);

TEST(PipelineErrors, WhatCannotBeSplitIsNamed) {
  const auto model = [] { return Sequential(Linear(4, 5), Recomputed(), Linear(5, 3)); };
  const auto errors = errors_of_steps(model, {.schedule = "zb-h1", .split = "1,2"});
  expect_words(errors[1], {"BackwardInput stage 1 micro-batch 0", "1.linear.weight", "1f1b"});
  for (const std::string& error : errors_of_steps(model, {.schedule = "1f1b", .split = "1,2"})) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace trireme
