#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "trireme/parallel/data/data_parallel.h"
#include "trireme/parallel/data/data_parallel_test_util.h"

namespace trireme {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

/// Buckets so small that every parameter has its own.
const DataParallelOptions kTinyBuckets{.bucket_mb = 1e-5, .first_bucket_mb = 1e-5};

TEST(DataParallelErrors, SeveralPassesNeedAGuardOrNoOverlap) {
  run_ranks(1, [](World& world) {
    ToyModel model(1);
    // Without the unused parameter, whose bucket would wait.
    model.unused.set_requires_grad(false);
    {
      DataParallel ddp(world.comm(), model, kTinyBuckets);
      toy_loss(model, 0).backward();
      try {
        toy_loss(model, 1).backward();
        FAIL() << "a bucket that travels was written to";
      } catch (const std::exception& error) {
        EXPECT_THAT(error.what(), HasSubstr("a second gradient of last came after its bucket had been sent"));
        EXPECT_THAT(error.what(), HasSubstr("no_sync()"));
      }
      EXPECT_THROW((void)ddp.no_sync(), UsageError);
    }
    model.zero_grad();
    DataParallelOptions options;
    options.overlap = false;
    DataParallel ddp(world.comm(), model, options);
    const Tensors parameters{model.first, model.last};
    const Tensors a = gradients_of(toy_loss(model, 0), parameters), b = gradients_of(toy_loss(model, 1), parameters);
    toy_loss(model, 0).backward();
    {
      auto guard = ddp.no_sync();
      toy_loss(model, 1).backward();
    }
    ddp.synchronize();
    EXPECT_TRUE(equal({model.first.grad(), model.last.grad()}, {a[0] + b[0], a[1] + b[1]}));
  });
}

/// The message of the error that every one of three ranks gets; rank 2 is different.
std::string error_of_all(const std::function<void(World&, bool different)>& body) {
  std::mutex mutex;
  std::vector<std::string> messages;
  run_ranks(3, [&](World& world) {
    try {
      body(world, world.rank() == 2);
    } catch (const UsageError& error) {
      const std::lock_guard lock(mutex);
      messages.push_back(error.what());
    }
  });
  EXPECT_EQ(messages.size(), 3u) << "an error on all ranks";
  for (const std::string& message : messages) EXPECT_EQ(message, messages[0]);
  return messages.empty() ? "" : messages[0];
}

TEST(DataParallelErrors, DifferentModelsAreAnErrorOnAllRanks) {
  EXPECT_THAT(error_of_all([](World& world, bool different) {
                const ToyModel model(1, different ? 12 : 16);
                const DataParallel ddp(world.comm(), model);
              }),
              HasSubstr("the model of rank 2 differs from rank 0's: it has first [12, 8] Float, rank 0 has first [16, "
                        "8] Float\n  build the same model on every rank"));
  EXPECT_THAT(error_of_all([](World& world, bool different) {
                ToyModel model(1);
                if (different) model.register_buffer("more", torch::zeros({1}));
                const DataParallel ddp(world.comm(), model);
              }),
              HasSubstr("it has buffer more [1] Float, rank 0 has nothing more"));
  EXPECT_THAT(error_of_all([](World& world, bool different) {
                ToyModel model(1);
                if (different) model.bias.set_requires_grad(false);
                const DataParallel ddp(world.comm(), model);
              }),
              HasSubstr("it has unused, rank 0 has bias\n  freeze the same"));
  EXPECT_THAT(error_of_all([](World& world, bool different) {
                const ToyModel model(1);
                DataParallelOptions options;
                options.bucket_mb = different ? 2 : 4;
                const DataParallel ddp(world.comm(), model, options);
              }),
              HasSubstr("the DataParallelOptions of rank 2 differs from rank 0's"));
}

TEST(DataParallelErrors, RefusesWhatItCannotDo) {
  run_ranks(1, [](World& world) {
    DataParallelOptions options;
    options.travel_type = torch::kInt32;
    ToyModel model(1);
    EXPECT_THROW(DataParallel(world.comm(), model, options), UsageError);
    options.travel_type = torch::kBFloat16;
    model.to(torch::kFloat64);
    EXPECT_THROW(DataParallel(world.comm(), model, options), UsageError);
    EXPECT_THROW(DataParallel(world.comm(), *torch::nn::Identity()), UsageError);
    ToyModel mixed(1);
    mixed.first.set_data(mixed.first.to(torch::kFloat64));
    try {
      const DataParallel ddp(world.comm(), mixed);
      FAIL() << "two types in one bucket";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("shared [16, 16] Float is of another type than first [16, 8] Double"));
    }
    ToyModel twice(1);
    const DataParallel first(world.comm(), twice);
    EXPECT_THROW(DataParallel(world.comm(), twice), UsageError);
  });
}

}  // namespace
}  // namespace trireme
